// Package conditions keeps the node's conditions in the Kubernetes API as the
// detector has them.
//
// A [Patcher] is given the latest conditions ([Patcher.Set]) and writes those that
// the API does not have yet, by a strategic-merge patch of nodes/status that names
// nothing but this agent's own types. It is level-triggered: what was set during an
// outage is forgotten for what was set last. There is no GET: the patch's answer and
// a watch on the own Node show what the API has.
//
//   - The first change is written at once, further ones a second later together.
//   - A type that the detector has not reported is left as it is. One that it reports
//     no more, or that an earlier run wrote and this one does not know, is removed.
//   - What another client writes over is written again. After three times in ten
//     minutes the type is left to the other for an hour, and the condition
//     [Contested] names it.
//   - Types of Kubernetes' own are refused, and never removed.
//
// Where the token is a file, the client should read it again when it was refused
// (transport.ResettableTokenSourceWrapTransport): with rest.Config.BearerTokenFile
// an expired one stays in use for up to a minute.
//
// It needs the rights to watch its node and to patch its nodes/status.
package conditions
