package install

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pageSize keeps an answer at some MiB.
const pageSize = 500

// pages calls list for each page; it returns where the next begins, or "".
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
