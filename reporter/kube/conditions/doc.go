// Package conditions keeps the node's conditions in the Kubernetes API up to date with the detector's.
//
// A [Patcher] gets the latest conditions by [Patcher.Set]. It writes conditions that the API does not
// have yet, by a strategic-merge patch of nodes/status with only this agent's own types. It is
// level-triggered: after an outage it writes only the conditions that were set last. It makes no GET:
// the answers to patches and a watch on the own Node show the state in the API.
//
//   - The first change is written at once; further changes follow together a second later.
//   - A type that the detector has not reported yet is not touched. A type that it no longer
//     reports, or that an earlier run wrote and this run does not know, is removed.
//   - A condition that another client overwrites is written again. If that happens three times in ten
//     minutes, the Patcher yields the type to the other client for an hour, and the condition
//     [Contested] names it.
//   - While the agent does not work, conditions that the controller has set for it stay.
//   - Kubernetes' own types are refused, and never removed.
//
// If the token is a file, the client should read it again when it was refused
// (transport.ResettableTokenSourceWrapTransport): with rest.Config.BearerTokenFile an expired
// token stays in use for up to a minute.
//
// The agent needs permission to watch its node and to patch its nodes/status.
package conditions
