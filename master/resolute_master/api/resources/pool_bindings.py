"""Which workspaces a resource pool is for."""

from __future__ import annotations

from resolute.errors import FailedPrecondition, InvalidInput, NotFound
from resolute.wire.rest.empty import Empty
from resolute.wire.rest.pools import (
    BindRPToWorkspaceRequest,
    ListWorkspacesBoundToRPQuery,
    ListWorkspacesBoundToRPResponse,
    OverwriteRPWorkspaceBindingsRequest,
    UnbindRPFromWorkspaceRequest,
)
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call, Route
from resolute_master.api.http.paging import page_of
from resolute_master.domain.administration import BindingChange, BindPool
from resolute_master.domain.ids import PoolName
from resolute_master.domain.workspace import PoolBinding
from resolute_master.lifecycle import workspaces

Request = BindRPToWorkspaceRequest | UnbindRPFromWorkspaceRequest | OverwriteRPWorkspaceBindingsRequest


async def _pool(call: Call) -> PoolName:
    """The pool in the path. Raises `NotFound`."""
    name = PoolName(call.text("resourcePoolName"))
    if name not in call.api.engine.pools:
        raise NotFound("resource pool", name)
    return name


async def _bindable(call: Call) -> PoolName:
    """The pool in the path, to be bound. A default pool is refused to every caller, so this check precedes the check of rights."""
    pool = await _pool(call)
    shape = BindRPToWorkspaceRequest if call.request.method == "POST" else OverwriteRPWorkspaceBindingsRequest
    try:
        request: Request = await call.body(shape)
    except InvalidInput:
        return pool  # a caller that may bind pools gets the error that names the problem
    manager = call.api.config.resource_manager
    defaults = (manager.default_compute_resource_pool, manager.default_aux_resource_pool)
    if pool in defaults and (request.workspace_ids or request.workspace_names):
        raise FailedPrecondition(
            f"pool '{pool}' is a default pool, which every workspace must be able to use: it cannot be bound; "
            "make another pool the default first (resource_manager.default_compute_resource_pool, default_aux_resource_pool)"
        )
    return pool


async def list_bound(call: Call, pool: PoolName) -> ListWorkspacesBoundToRPResponse:
    """The workspaces that may use a bound pool."""
    query = call.query(ListWorkspacesBoundToRPQuery)
    binding = call.api.engine.state.get(PoolBinding, pool)
    rows, pages = page_of(binding.workspaces if binding else (), offset=query.offset, limit=query.limit)
    return ListWorkspacesBoundToRPResponse(workspace_ids=rows, pagination=pages)


async def add(call: Call, pool: PoolName) -> Empty:
    """Binds a pool to further workspaces."""
    return await _change(call, pool, await call.body(BindRPToWorkspaceRequest), BindingChange.ADD)


async def remove(call: Call, pool: PoolName) -> Empty:
    """Removes workspaces from the binding of a pool. A pool without any accepts all workspaces."""
    return await _change(call, pool, await call.body(UnbindRPFromWorkspaceRequest), BindingChange.REMOVE)


async def replace(call: Call, pool: PoolName) -> Empty:
    """Binds a pool to these workspaces only."""
    return await _change(call, pool, await call.body(OverwriteRPWorkspaceBindingsRequest), BindingChange.REPLACE)


async def _change(call: Call, pool: PoolName, request: Request, change: BindingChange) -> Empty:
    wanted = (*request.workspace_ids, *_named(call, request.workspace_names))
    await call.api.engine.submit(BindPool(pool=pool, workspaces=wanted, change=change))
    return Empty()


def _named(call: Call, names: tuple[str, ...]) -> tuple[int, ...]:
    ids = {one.name: one.id for one in workspaces.workspaces(call.api.engine.state)}
    unknown = [name for name in names if name not in ids]
    if unknown:
        known = ", ".join(f"'{name}'" for name in ids)
        raise InvalidInput(f"workspaceNames: there is no workspace '{unknown[0]}'; choose from {known}")
    return tuple(ids[name] for name in names)


_PATH = "/api/v1/resource-pools/{resourcePoolName}/workspace-bindings"

ROUTES = (
    Route("GET", _PATH, Action.VIEW, _pool, list_bound),
    Route("POST", _PATH, Action.BIND_POOLS, _bindable, add),
    Route("PUT", _PATH, Action.BIND_POOLS, _bindable, replace),
    Route("DELETE", _PATH, Action.BIND_POOLS, _pool, remove),
)
