package install

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pageSize keeps a response at a few MiB.
const pageSize = 500

// pages calls list for each page. list returns the continue token of the next page, or "".
func pages(ctx context.Context, list func(context.Context, metav1.ListOptions) (string, error)) error {
	o := metav1.ListOptions{Limit: pageSize}
	for {
		err := retry(ctx, func(ctx context.Context) (err error) {
			o.Continue, err = list(ctx, o)
			return err
		})
		if err != nil || o.Continue == "" {
			return err
		}
	}
}
