// The one source file of the precompiled header.
