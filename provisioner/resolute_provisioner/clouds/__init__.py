"""The cloud port, the port of providers, and the providers. Each knows how to speak with one cloud; none decides anything.

`base` is the port that machines are asked of, `fake` the fake of it; `driver` is the port of a provider: its offers,
preflight, prices, boot, what is shown of it. Each provider is one package, listed in `resolute.providers`, and nothing outside of
it asks which provider a pool has. `configured_offers` and `machine_host` are what several of them share.
A cloud's SDK is imported by that cloud's modules alone, and only when such a cloud is opened.
"""
