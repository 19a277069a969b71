"""Our ASGI application as a handler of Lambda, by an adapter that others wrote."""

from mangum import Mangum

from integration.functions.deployable import app

handler = Mangum(app, lifespan="off")
