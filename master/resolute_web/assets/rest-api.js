"use strict";
/* Shows the description of the REST API. Calls that are tried out use the session of the browser; those that change something
   need its CSRF token, which only pages of the interface have, so they are shown and not made. */
window.addEventListener("load", () => {
  const place = document.getElementById("rest-api");
  window.SwaggerUIBundle({
    url: place.dataset.description,
    domNode: place,
    docExpansion: "none",
    filter: true,
    deepLinking: true,
    displayRequestDuration: true,
    supportedSubmitMethods: ["get"],
    validatorUrl: null,
  });
});
