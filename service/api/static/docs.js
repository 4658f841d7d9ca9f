// Starts Swagger UI on our own document. A file of its own, because the content security policy forbids inline scripts.
window.ui = SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  tryItOutEnabled: true,
  displayRequestDuration: true,
  validatorUrl: null, // a badge that would be fetched from elsewhere
});
