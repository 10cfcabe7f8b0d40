// Limits of the gateway's adapters: buffers, threads, timeouts, connections and transfers. The
// limits of the wire are in wire/limits.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace outboard::gateway {

// Backpressure of a session: stops reading a direction while this many bytes wait to be written,
// and resumes below half of it. A slow reader stalls its own session and never fills the gateway's
// memory.
inline constexpr size_t kQueuedBytesMax = size_t{8} << 20;
inline constexpr int kPoolThreads = 4;  // verification, hashing, disk; never steps
// Of those threads. An upload of one account otherwise made one step in a hundred of another ten
// times as long, on two cores.
inline constexpr int kPoolNiceness = 10;
// For so long after a step of one account, uploads, graphs and reports of the others have half a
// processor for each account. Steps that are further apart take longer than what they wait for.
inline constexpr int64_t kStepsRecentMs = 100;
inline constexpr int64_t kTickMs = 200;
// Freed memory beyond this is given back to the system every kTrimTicks: a flood's, never a step's.
inline constexpr size_t kFreeBytesKept = size_t{32} << 20;
inline constexpr int64_t kTrimTicks = 25;
// From a connection to the end of its handshake; a stream has kOpenMs (data_path/core_driver.h).
inline constexpr int64_t kFirstMessageMs = 5'000;
// How often the keys of open calls are looked at: of sessions every kKeyCheckTicks, of transfers
// every kKeyCheckMs. A key that stands no more ends them within 5 s.
inline constexpr int64_t kKeyCheckTicks = 10;
inline constexpr int64_t kKeyCheckMs = 1000;
inline constexpr int64_t kKeyUseMs = 60'000;  // at most once in this time a key's use is written
inline constexpr int64_t kExecutorWordMs =
    1000;  // between the end of an executor's stream and its worker's SessionEnded, either first
inline constexpr size_t kGraphVerdictsMax = 8192;
// Graphs that were written for the ranks of sessions on several devices, of all accounts together:
// a program has dozens, of some 100 KB.
inline constexpr size_t kWrittenGraphsBytesMax = size_t{256} << 20;
// What such a session may make the gateway remember. An executor ends a session with more handles
// or graphs, but hears of them later.
inline constexpr size_t kGroupHandlesMax = size_t{1} << 22;
inline constexpr size_t kGroupGraphsMax = 4096;
inline constexpr size_t kGroupGraphBytesMax = size_t{64} << 20;
// How the arrays of such a session lie, in its row: written with each snapshot. With more, which
// takes some 30,000 arrays, the session ends with the gateway.
inline constexpr size_t kGroupStateBytesMax = size_t{1} << 20;
inline constexpr size_t kGroupStateArraysMax = size_t{1} << 16;
// Gathers of one graph that its client is told of, each on a line of the user's terminal.
inline constexpr size_t kGathersTold = 4;
// What a session holds beside a Run is known to who writes the graph in parts of a device's memory:
// so many graphs are written at most, where a few more bytes would otherwise make another.
inline constexpr int64_t kHeldMemorySteps = 32;
// Ways in which a session runs one graph (its arrays' layouts, what it fetches and donates) that it
// finds again at once: a training has two or three. And 8-byte words to describe them, of a
// session.
inline constexpr size_t kKnownRunsMax = 8;
inline constexpr size_t kKnownRunWordsMax = size_t{1} << 19;
// gRPC reads with two threads and, by default, up to 4 MiB of a socket at once: a step waited for
// milliseconds behind two uploads. Less than this makes uploads dearer.
inline constexpr int kReadAtOnceBytesMax = 32 << 10;
// What a connection may send ahead of whoever reads it here. gRPC's own estimate grew to 16 MiB and
// more for every fast connection: eight uploads of one account held 165 MB. Eight connections,
// which our client has, still send 80 MB/s over a round trip of 100 ms.
inline constexpr uint64_t kWindowBytes = uint64_t{1536} << 10;
inline constexpr int kStreamsPerConnectionMax = 256;
// Of one IPv4 address or /64 of IPv6: a program has one, and a few more for large values; a
// household or office behind one address has several programs.
inline constexpr size_t kConnectionsPerAddressMax = 64;
inline constexpr size_t kConnectionsPerWorkerAddressMax = 1024;  // where workers join
// Of all, where the limit of descriptors is higher: each takes 20 to 50 KB.
inline constexpr size_t kConnectionsMax = 8192;
// Not given to connections: the accounts file, chunks that are read and written, executors.
inline constexpr int kDescriptorsForDisk = 64;
// From a connection to a key that is good. Longer than kFirstMessageMs: a connection that is set up
// may wait for its program, which comes again if it takes longer.
inline constexpr int64_t kConnectionKeyMs = 30'000;
// What a connection may send before a key of it is good: more than the windows that a fast upload
// fills while its key is checked. Nothing is read for its calls until then.
inline constexpr uint64_t kBytesBeforeKeyMax = 8 * kWindowBytes;
inline constexpr uint64_t kBytesBeforeKeyInTotalMax = uint64_t{64} << 20;
// A call's headers: names, values and 32 bytes for each, as HTTP/2 counts them. gRPC itself tells
// peers 8 KiB, and does not hold those to it that do not acknowledge it.
inline constexpr uint32_t kHeaderListBytesMax = 16 << 10;
// The same as sent, where they do not fit into one frame. Only headers above gRPC's limit do not,
// but a peer may cut where it likes.
inline constexpr size_t kHeaderBlockBytesMax = 16 << 10;
inline constexpr int kHeaderFramesMax = 4;
// A wrong key's answer is delayed: the first by kWrongKeyDelayMs, the next of the address twice as
// long, up to kWrongKeyDelayMsMax. Each kWrongKeyForgetMs without one takes half of it back.
inline constexpr int64_t kWrongKeyDelayMs = 50;
inline constexpr int64_t kWrongKeyDelayMsMax = 4'000;
inline constexpr int64_t kWrongKeyForgetMs = 30'000;
inline constexpr size_t kWrongKeyAddressesMax = 65'536;  // remembered: 100 bytes each
// Answers that wait; an address that has more waiting is answered without a look at its keys.
inline constexpr int kWrongKeysWaitingMax = 16;
inline constexpr size_t kWrongKeysWaitingInTotalMax = 4096;
// Of an account, at a time: calls that wait for an answer, and streams of sessions and of their
// large values (a program that comes back has its old stream beside the new one for a moment).
inline constexpr int kCallsPerAccountMax = 256;
inline constexpr int kStreamsPerAccountMax = 256;
// Sessions that are opened or resumed: so many at once, then kOpeningsPerMinute. Each writes rows.
inline constexpr int kOpeningsAtOnce = 120;
inline constexpr int kOpeningsPerMinute = 600;
// How long the refusal of one more waits: a program that tries again at once otherwise opens and is
// refused thousands of times a second, which costs others' steps more than openings do.
inline constexpr int64_t kOpeningRefusedMs = 250;
// Bytes of graphs of an account that wait to be whole or to be checked, of all its sessions.
inline constexpr size_t kGraphBytesInFlightMax = size_t{64} << 20;
inline constexpr int kAuthThreads = 2;   // keys, and nothing else: they wait for no account's work
inline constexpr int kBooksThreads = 1;  // names and keys, which are written to the accounts file
inline constexpr int kLocalStrangersMax = 256;  // local connections that have not authenticated yet
inline constexpr size_t kWorkerNameBytesMax = 80;
inline constexpr size_t kWorkerIdentityBytes = 32;
// Uploads in flight; the same number of downloads. A transfer that waits longer than
// kTransferStalledMs for its client is ended.
inline constexpr int kTransfersPerTenantMax = 64;
inline constexpr size_t kTransfersMax = 512;
inline constexpr int64_t kTransferStalledMs = 60'000;
// A client's stream whose reader takes nothing for so long is cut; the client may come back.
inline constexpr int64_t kReaderStalledMs = 30'000;
inline constexpr uint32_t kDevicesPerWorkerMax = 1024;

// Machines of its own that an account may have at a gateway: each is a stream and its sessions'.
inline constexpr size_t kOwnWorkersMax = 16;
// What such a machine may say on its stream; an honest one beats once a second, and reports ends.
inline constexpr double kOwnEventsPerS = 64, kOwnEventsAtOnce = 1024;

// Sessions that a worker may name when it joins; and in a heartbeat, beyond those that it was
// given: what ended a moment ago is named until its worker has heard of it.
inline constexpr size_t kWorkerSessionsMax = 4096;
inline constexpr size_t kSessionsBeyondMax = 64;
// Receipts of a worker, each a signature to check: of each leased device in a heartbeat, for each
// lease that begins, and without any. An honest worker needs a quarter of that.
inline constexpr double kReceiptsPerBeat = 4, kReceiptsPerLease = 8, kReceiptsIdlePerS = 4;

}  // namespace outboard::gateway
