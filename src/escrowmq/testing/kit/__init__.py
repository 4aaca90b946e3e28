"""The testing kit for users (docs/testing.md): a broker in the test's process. It knows nothing of
`testing.sim`, which is for our own tests."""
