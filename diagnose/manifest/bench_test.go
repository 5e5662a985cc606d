package manifest

import "testing"

func BenchmarkReadKinds(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := readKinds(); err != nil {
			b.Fatal(err)
		}
	}
}
