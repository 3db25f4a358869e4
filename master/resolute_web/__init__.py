"""The web interface: pages for people, served by the master beside its REST API.

Knows HTML and who is asking. It reads through the functions with which the API answers and changes things only by the API's own
handlers, so that each is authorised in one place. Must not know rules, SQL, agents or clouds. What it shows can be read without
JavaScript; scripts make it live.

- `interface`    everything that is served, in one table
- `page`         the path that a request for a page takes: log in, check the form, answer, explain errors as a page
- `frame`        what stands around every page; `rendering` the templates and their filters; `words` how values are written
- `assets`       style sheets, scripts, fonts and icons, under names that change with their content
- `live`         server-sent events: what has changed of what a tab shows
- `actions`      buttons: what a caller may do to a thing, and why not
- `series`       metrics as lines to draw, thinned so that extremes stay
- `life`         a trial's time from its submission to its end, in parts
- `views`        one module a subject
"""
