// Command image packs kernosis, built for one or more platforms, into a container image: an OCI image
// layout in a tar, which container runtimes import and registries accept. The image contains no
// distribution, only the program, the licences of everything linked into it, and its SBOM (CycloneDX).
//
// It contacts no registry, runs no container tools and reads no clock: equal input gives equal bytes.
//
//	image -version v1.2.3 -archive dist/kernosis-image.tar dist/kernosis-linux-amd64 dist/kernosis-linux-arm64
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "image:", err)
		}
		os.Exit(1)
	}
}

// release describes an image besides its contents.
type release struct {
	name     string    // image name without a tag: kernosis/kernosis
	version  string    // also the tag, without a leading v
	revision string    // commit; empty if unknown
	created  time.Time // in UTC, whole seconds; also the modification time of all files
}

type options struct {
	release

	source   string   // root folder of the module
	programs []string // paths
	// Output paths; an empty one is not written.
	archive, sbom, root string
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("image", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprintln(stderr, "usage: image -version VERSION [flags] PROGRAM...")
		f.PrintDefaults()
	}
	f.StringVar(&o.name, "name", "kernosis/kernosis", "`name` of the image without a tag, with the registry's host if any")
	f.StringVar(&o.version, "version", "", "`version` of the programs; without a leading v it is the image's tag")
	f.StringVar(&o.revision, "revision", "", "`commit` that the programs were built from")
	f.StringVar(&o.source, "source", ".", "`folder` of the module that they were built from")
	f.StringVar(&o.archive, "archive", "", "`file` to write the image to, for all platforms")
	f.StringVar(&o.sbom, "sbom", "", "`file` to write the SBOM of the programs to (CycloneDX)")
	f.StringVar(&o.root, "root", "", "`folder` to write the image's files to, for one platform; must not exist")
	f.Func("created", "time of the image and its files, in `seconds` since 1970 (default 0)", func(s string) error {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < 0 {
			return errors.New("want whole seconds since 1970")
		}
		o.created = time.Unix(n, 0).UTC()
		return nil
	})
	o.created = time.Unix(0, 0).UTC()
	if err := f.Parse(args); err != nil {
		return o, err
	}
	o.programs = f.Args()
	switch {
	case o.version == "":
		return o, errors.New("-version is required")
	case len(o.programs) == 0:
		return o, errors.New("no program given: name at least one")
	case o.root != "" && len(o.programs) != 1:
		return o, errors.New("-root: want exactly one program, for one platform")
	case o.archive == "" && o.sbom == "" && o.root == "":
		return o, errors.New("nothing to write: set -archive, -sbom or -root")
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	b := &builder{release: o.release}
	if err := b.read(ctx, o.source, o.programs); err != nil {
		return err
	}
	if o.sbom != "" {
		text, err := b.bom(b.programs)
		if err != nil {
			return err
		}
		if err := replace(o.sbom, text); err != nil {
			return err
		}
		fmt.Fprintf(stdout, "%s: %d modules\n", o.sbom, len(b.modules))
	}
	if o.root != "" {
		if err := b.writeRoot(o.root); err != nil {
			return err
		}
		fmt.Fprintf(stdout, "%s: files for %s\n", o.root, b.programs[0])
	}
	if o.archive == "" {
		return nil
	}
	ref, err := reference(o.name, o.version)
	if err != nil {
		return err
	}
	var archive bytes.Buffer
	digest, err := b.write(&archive, ref)
	if err != nil {
		return err
	}
	if err := replace(o.archive, archive.Bytes()); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s: %s %s, %.1f MiB\n", o.archive, ref, digest, float64(archive.Len())/(1<<20))
	return nil
}

// builder builds an image of programs that were built from the same source.
type builder struct {
	release

	programs []*program
	modules  []module // linked into any of the programs, including Go itself; sorted
	objects  []file   // BPF objects embedded in each program
	licences []file   // Kernosis' own licences
}

func (b *builder) read(ctx context.Context, source string, programs []string) error {
	seen := map[string]bool{}
	for _, path := range programs {
		p, err := readProgram(path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if seen[p.String()] {
			return fmt.Errorf("%s: another program is already given for %s", path, p)
		}
		seen[p.String()] = true
		b.programs = append(b.programs, p)
	}
	var err error
	if b.modules, err = readModules(ctx, source, b.programs); err != nil {
		return err
	}
	if b.objects, err = readFiles(source, "bpf/*.o"); err != nil {
		return err
	}
	for _, o := range b.objects {
		for _, p := range b.programs {
			if !bytes.Contains(p.content, o.content) {
				return fmt.Errorf("%s is not in the program for %s: rebuild the program", o.name, p)
			}
		}
	}
	b.licences, err = readFiles(source, "LICENSE", "LICENSES/*.txt")
	return err
}

// replace replaces a file atomically: concurrent readers see the old content or the new.
func replace(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	tmp := path + ".new"
	if err := os.WriteFile(tmp, content, 0o644); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return os.Rename(tmp, path)
}
