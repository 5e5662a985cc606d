package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/kernosis/kernosis/deploy/install"
)

// Requests a second, and at once: 1,000 nodes of two writes each are done in 20 s, and an
// API server has room for others.
const uninstallQPS, uninstallBurst = 100, 200

func newUninstall() *cobra.Command {
	var kube *kubeFlagSet
	var timeout time.Duration
	c := install.Config{}
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Stop agents and controller, and take out of the cluster what they have left",
		Long: `Delete the agents' DaemonSet and the controller's Deployment, wait until their pods
are gone, and then remove what they have written to objects of others: conditions, cordons
and taints of nodes. Their Leases, and what Triggers remember, go too; the kinds, and with
them all Diagnoses, only with --crds. It may be run again. Roles, service accounts and
configuration are of those who have made them (helm uninstall, kubectl delete -k).`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.Namespace = cmp.Or(kube.over.Context.Namespace, os.Getenv("POD_NAMESPACE"), install.DefaultNamespace)
			if why := validation.IsDNS1123Label(c.Namespace); len(why) > 0 {
				return fmt.Errorf("namespace: %q: %s", c.Namespace, why[0])
			}
			to, err := kube.uninstaller(timeout)
			if err != nil {
				return err
			}
			c.To, c.Say = to, func(line string) { fmt.Fprintln(cmd.OutOrStdout(), line) }
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return failed(install.Uninstall(ctx, c))
		},
	}
	kube = newKubeFlagSet(cmd.Flags())
	cmd.Flags().StringVar(&c.DaemonSet, "daemonset", install.DefaultDaemonSet, "`name` of the agents' DaemonSet")
	cmd.Flags().StringVar(&c.Deployment, "deployment", install.DefaultDeployment, "`name` of the controller's Deployment")
	cmd.Flags().BoolVar(&c.Kinds, "crds", false, "delete the kinds too, and with them all Diagnoses, OperationSets, Triggers, Operations and policies")
	cmd.Flags().DurationVar(&timeout, "timeout", 2*time.Minute, "how long all of it may take")
	return cmd
}

func newCRDs() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "crds",
		Short: "Make the kinds of kernosis.io known to a cluster, or delete them",
	}
	cmd.AddCommand(newCRDsApply(), newCRDsDelete())
	return cmd
}

func newCRDsApply() *cobra.Command {
	var kube *kubeFlagSet
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "apply",
		Short: "Apply the definitions of this version, and wait until they are established",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			to, err := kube.uninstaller(timeout)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return failed(install.ApplyKinds(ctx, to, func(line string) { fmt.Fprintln(cmd.OutOrStdout(), line) }))
		},
	}
	kube = newKubeFlagSet(cmd.Flags())
	cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long it may take")
	return cmd
}

func newCRDsDelete() *cobra.Command {
	var kube *kubeFlagSet
	var timeout time.Duration
	var yes bool
	cmd := &cobra.Command{
		Use:   "delete --yes",
		Short: "Delete the definitions, and with them all objects of these kinds",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !yes {
				return errors.New("all Diagnoses, OperationSets, Triggers, Operations and policies of the cluster go with their definitions: say --yes")
			}
			to, err := kube.uninstaller(timeout)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return failed(install.DeleteKinds(ctx, to, func(line string) { fmt.Fprintln(cmd.OutOrStdout(), line) }))
		},
	}
	kube = newKubeFlagSet(cmd.Flags())
	cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long it may take")
	cmd.Flags().BoolVar(&yes, "yes", false, "all objects of these kinds are to go")
	return cmd
}

// uninstaller returns how to reach the API server for commands that write a lot, once.
func (k *kubeFlagSet) uninstaller(timeout time.Duration) (*rest.Config, error) {
	if timeout <= 0 {
		return nil, fmt.Errorf("timeout: %s, want more than 0", timeout)
	}
	to, err := k.rest()
	if err != nil {
		return nil, err
	}
	to.QPS, to.Burst, to.UserAgent = uninstallQPS, uninstallBurst, "kernosis-uninstall/"+version
	return to, nil
}
