// Limits of the wire. Both sides hold them: a sender stays within, a receiver refuses what is
// beyond.
#pragma once

#include <cstddef>
#include <cstdint>

namespace outboard::wire {

// What this build speaks, and the oldest that it still does. 2: recovery, repeated Runs, blobs by
// worker, checkpoints.
inline constexpr uint32_t kProtocolVersion = 2;
inline constexpr uint32_t kProtocolVersionOldest = 1;
inline constexpr uint32_t kGraphSchemaVersion = 1;

// A frame as sent. Receivers accept a little more (kMessageBytesMax), so that a frame at the limit
// is refused by us with a message rather than by gRPC with a code that says nothing.
inline constexpr size_t kFrameBytesMax = size_t{1} << 20;
inline constexpr size_t kMessageBytesMax = kFrameBytesMax + (size_t{1} << 16);
// Bytes of a Put, Graph, Value or blob in one item: two of them and their headers fit into a frame.
inline constexpr size_t kPieceBytesMax = size_t{500} << 10;
inline constexpr size_t kFrameItemsMax = 4096;
inline constexpr size_t kRunHandlesMax =
    65536;  // inputs and outputs of one Run, and handles of one Release
// Repetitions of one Run: hours of small steps, so that a session is never more than one item away
// from its client.
inline constexpr uint32_t kRepeatMax = uint32_t{1} << 20;

// Chunks are large enough that a list of hashes is 1/131072 of the data, small enough to send
// again.
inline constexpr size_t kBlobChunkBytes = size_t{4} << 20;
// Hashes in one question, and so chunks of one blob: 117 GiB. Their message is not cut into pieces.
inline constexpr size_t kBlobHashesMax = 30'000;
inline constexpr size_t kBlobChunksMax = kBlobHashesMax;
// Above this a Put goes by its hash: below, asking what is missing costs more than sending it.
inline constexpr size_t kInlinePutBytesMax = size_t{1} << 20;

// Above this a value goes over the connection for large ones.
inline constexpr size_t kInlineValueBytesMax = size_t{64} << 10;

// The most that a client may have in flight; its own window (client/session/core/send_window.h) is
// as a rule far below. Steps of 20 us over 200 ms need 10,000.
inline constexpr uint32_t kCreditItems = 16'384;
inline constexpr uint64_t kCreditBytes = uint64_t{64} << 20;

// With so much that no snapshot holds the executor takes one before its time. A client keeps twice
// that for sending it again.
inline constexpr uint32_t kNotDurableItemsMax = 32'768;
inline constexpr uint64_t kNotDurableBytesMax = uint64_t{64} << 20;  // of inline Puts

inline constexpr size_t kSessionIdBytes = 16;
inline constexpr size_t kTokenBytes = 16;
inline constexpr size_t kHashBytes = 32;

}  // namespace outboard::wire
