"""The web interface: pages that the master serves beside its REST API.

Contains HTML and the caller. It reads through the functions with which the API answers and changes things only by the API's own
handlers, so that each is authorised in one place. Must not depend on rules, SQL, agents or clouds. Every page can be read without
JavaScript; scripts update it live.

- `interface`    everything that is served, in one table
- `page`         the path of a request for a page: log in, check the form, answer, show errors as a page
- `frame`        the frame of every page; `rendering` the templates and their filters; `words` the format of values
- `assets`       style sheets, scripts, fonts and icons, under names that change with their content
- `live`         server-sent events: changes of what a tab shows
- `actions`      buttons: the actions that a caller may take, and the reasons of the others
- `series`       metrics as lines to draw, thinned so that extremes stay
- `life`         a trial's time from its submission to its end, in parts
- `views`        one module a subject
"""
