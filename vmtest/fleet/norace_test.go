//go:build !race

package main

const agents = 500
