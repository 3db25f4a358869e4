"""Submit and fork: a form with the configuration, which is checked as it is typed by the checks of the call itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aiohttp import web

from resolute.config import load_yaml
from resolute.config.yaml_text import dump_yaml
from resolute.errors import InvalidInput, ResoluteError
from resolute.wire.rest.experiment_changes import CreateExperimentRequest, CreateExperimentResponse
from resolute.wire.rest.search import PreviewHPSearchRequest, TrialSummary
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call, nothing, number_in
from resolute_master.api.http.errors import status_of
from resolute_master.api.http.limits import MAX_UPLOAD_BYTES
from resolute_master.api.reading.finders import experiment_at, find_experiment
from resolute_master.api.reading.showing import show_experiment
from resolute_master.api.resources import preview as api_preview
from resolute_master.api.submission.create_experiment import create_from
from resolute_master.domain.copies import replace
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.template import Template
from resolute_master.domain.workspace import UNCATEGORIZED_ID
from resolute_master.lifecycle import workspaces
from resolute_web.forms import Form, asking, read_form
from resolute_web.page import Page, fragment, page, see
from resolute_web.problems import Problem, problems_of
from resolute_web.uploads import Upload, code_of, uploads_of

EXAMPLE = """\
name: my experiment
entrypoint: python3 train.py
searcher:
  name: single
  metric: validation_loss
resources:
  slots_per_trial: 1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What a form says. `parent` is the experiment whose code is used; 0 for none."""

    config: str
    template: str = ""
    project: int = UNCATEGORIZED_ID
    parent: int = 0
    activate: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What the checks say: either problems, or what would be created."""

    problems: Sequence[Problem] = ()
    created: CreateExperimentResponse | None = None
    trials: Sequence[TrialSummary] = ()


# -------------------------------------------------------------------------------------------------------------- pages


async def blank(call: Call, _: None) -> web.Response:
    return await _form(call, Draft(config=EXAMPLE), "Submit an experiment")


async def fork(call: Call, parent: Experiment) -> web.Response:
    """The configuration as it was submitted, with masks for secrets; with `complete` the one with all defaults."""
    shown = await show_experiment(call.api, parent)
    complete = call.request.query.get("complete") == "yes"
    text = dump_yaml(dict(shown.config or {})) if complete else _in_lines(shown.original_config)
    draft = Draft(config=text, project=parent.project_id, parent=parent.id)
    return await _form(call, draft, f"Fork experiment {parent.id}")


def _in_lines(text: str) -> str:
    """What a program has submitted as JSON in one line, as YAML; what a person has written as it is."""
    return dump_yaml(load_yaml(text)) if text.lstrip().startswith("{") else text


async def _form(
    call: Call, draft: Draft, title: str, *, check: CheckResult | None = None, status: int = 200
) -> web.Response:
    state = call.api.engine.state
    parent = await find_experiment(call.api, draft.parent) if draft.parent else None
    names = {one.id: one.name for one in workspaces.workspaces(state)}
    return await page(
        call,
        "submit.html",
        title=title,
        section="Experiments",
        draft=draft,
        parent=parent,
        check=check or await _checked(call, draft),
        templates=sorted(template.id for template in state.all(Template)),
        projects=[(one.id, f"{names.get(one.workspace_id, '')} / {one.name}") for one in workspaces.projects(state)],
        status=status,
    )


# ------------------------------------------------------------------------------------------------------------- checks


def _draft_of(form: Form, config: str = "") -> Draft:
    return Draft(
        config=config or form.text("config").replace("\r\n", "\n"),
        template=form.text("template"),
        project=number_in("project", form.text("project") or str(UNCATEGORIZED_ID)),
        parent=number_in("parent", form.text("parent") or "0"),
        activate=form.text("activate") == "yes",
    )


def _request(draft: Draft) -> CreateExperimentRequest:
    return CreateExperimentRequest(
        config=draft.config,
        template=draft.template or None,
        project_id=draft.project if draft.project != UNCATEGORIZED_ID else None,
        parent_id=draft.parent or None,
        activate=draft.activate,
    )


async def _checked(call: Call, draft: Draft) -> CheckResult:
    """As the command line's `--test-mode` without a trial: everything that a submission is refused for."""
    try:
        created = await create_from(call, replace(_request(draft), validate_only=True))
    except ResoluteError as error:
        return CheckResult(problems=problems_of(str(error), draft.config))
    return CheckResult(created=created, trials=await _planned(call, created))


async def _planned(call: Call, created: CreateExperimentResponse) -> Sequence[TrialSummary]:
    """The numbers of trials by training length, from the search's preview."""
    request = PreviewHPSearchRequest(config=created.config)
    try:
        answer = await api_preview.preview(asking(call, request), None)
    except ResoluteError:
        return ()  # a mask replaces a value of the search: the checked configuration has the value
    return answer.summary.trials if answer.summary is not None else ()


async def check(call: Call, _: None) -> web.Response:
    """For the editor, while someone types."""
    draft = _draft_of(await read_form(call))
    return await fragment("submit_check.html", check=await _checked(call, draft))


# ------------------------------------------------------------------------------------------------------------- submit


async def submit(call: Call, _: None) -> web.Response:
    form, uploads = await read_form(call), await uploads_of(call)
    draft = _draft_of(form, _configuration(uploads))
    title = f"Fork experiment {draft.parent}" if draft.parent else "Submit an experiment"
    if form.text("do") == "check":
        return await _form(call, draft, title)
    try:
        code = code_of([each for each in uploads if each.field == "code"], now_s=int(call.api.clock.now().timestamp()))
        created = await create_from(call, replace(_request(draft), model_definition=code))
    except ResoluteError as error:
        check = CheckResult(problems=problems_of(str(error), draft.config))
        return await _form(call, draft, title, check=check, status=status_of(error).http)
    return see(f"/det/experiments/{created.experiment.id}")


def _configuration(uploads: Sequence[Upload]) -> str:
    """A file that was chosen counts more than the text; empty when there is none."""
    for each in uploads:
        if each.field == "config_file":
            try:
                text = each.content.decode()
            except UnicodeDecodeError:
                raise InvalidInput(f"config_file: '{each.path[:80]}' is no UTF-8 text; choose a YAML file") from None
            load_yaml(text, what=f"config_file: '{each.path[:80]}'")
            return text
    return ""


_NEW = "/det/experiments/new"

PAGES = (
    Page("GET", _NEW, Action.VIEW, nothing, blank),
    Page("POST", _NEW, Action.CREATE_EXPERIMENT, nothing, submit, max_body=MAX_UPLOAD_BYTES),
    Page("POST", f"{_NEW}/check", Action.CREATE_EXPERIMENT, nothing, check),
    Page("GET", "/det/experiments/{experimentId}/fork", Action.VIEW, experiment_at("experimentId"), fork),
)
