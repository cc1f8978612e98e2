package main

func (o *options) findMutants(b *builder) (int, error) { return 0, nil }
