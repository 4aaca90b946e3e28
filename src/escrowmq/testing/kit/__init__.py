"""The testing kit for users (docs/testing.md): a broker in the test's process. It does not use
`tests/sim`, which is for our own tests."""
