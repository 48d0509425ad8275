"""The route that looks at grammars without generating."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from llgtrt.api.body import read_request, request_body
from llgtrt.api.responses import OF_BODIES, json_object
from llgtrt.api.routing import new_router
from llgtrt.api.services import services_of
from llgtrt.serving import ValidateRequest

router = new_router()


@router.post(
    "/v1/grammar/validate",
    tags=["grammar"],
    summary="Check a grammar, and instances against it",
    openapi_extra=request_body("ValidateRequest"),
    responses={**json_object("The report."), **OF_BODIES},
    response_model=None,
)
async def validate(request: Request) -> Response:
    """Answers 200 with a report for any grammar, good or bad; 400 if the request itself is malformed."""
    services = services_of(request)
    body = await read_request(request, services.server, ValidateRequest)
    one = services.models.find(body.model)
    one.model.resolve(body.model)
    return Response(await one.validate.report(body), media_type="application/json")
