"""The cloud port, the port of providers, and the providers. Each provider calls one cloud; none decides anything.

`base` is the port to a cloud's machines, `fake` the fake of it; `driver` is the port of a provider: its offers,
preflight, prices, boot and display. Each provider is one package, listed in `resolute.providers`, and no code outside of
it tests which provider a pool has. `configured_offers` and `machine_host` are shared by several of them.
Only that cloud's modules import its SDK, and only when such a cloud is opened.
"""
