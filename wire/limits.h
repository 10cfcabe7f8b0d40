// Limits of the wire. Both sides enforce them: a sender stays within, a receiver rejects anything
// beyond.
#pragma once

#include <cstddef>
#include <cstdint>

namespace outboard::wire {

// The protocol version of this build, and the oldest that it still supports. Version 2 added
// recovery, repeated Runs, blobs pulled by the worker, and checkpoints; version 3 added
// TakeSnapshot, between a gateway and its workers.
inline constexpr uint32_t kProtocolVersion = 3;
inline constexpr uint32_t kProtocolVersionOldest = 1;
inline constexpr uint32_t kGraphSchemaVersion = 1;

// A frame as sent. Receivers accept a little more (kMessageBytesMax), so that a frame just over the
// limit is rejected by our code with a clear message, and not by gRPC with an unspecific code.
inline constexpr size_t kFrameBytesMax = size_t{1} << 20;
inline constexpr size_t kMessageBytesMax = kFrameBytesMax + (size_t{1} << 16);
// Bytes of a Put, Graph, Value or blob in one item: two of them and their headers fit into a frame.
inline constexpr size_t kPieceBytesMax = size_t{500} << 10;
inline constexpr size_t kFrameItemsMax = 4096;
// Inputs and outputs of one Run, and handles of one Release.
inline constexpr size_t kRunHandlesMax = 65536;
// The name of an array in a checkpoint (store.proto).
inline constexpr size_t kEntryNameBytesMax = 255;
// Repetitions of one Run: enough for hours of small steps, so that a session is never more than one
// item away from its client.
inline constexpr uint32_t kRepeatMax = uint32_t{1} << 20;

// Large enough that a list of hashes is 1/131072 of the data, small enough to send again.
inline constexpr size_t kBlobChunkBytes = size_t{4} << 20;
// Hashes in one request, and so chunks of one blob: 117 GiB. Such a message is not split.
inline constexpr size_t kBlobHashesMax = 30'000;
inline constexpr size_t kBlobChunksMax = kBlobHashesMax;
// A larger Put is sent as a blob; for a smaller one, asking which chunks are missing costs more
// than sending it.
inline constexpr size_t kInlinePutBytesMax = size_t{1} << 20;

// A larger value is sent on the stream for large values (Values in cloud.proto).
inline constexpr size_t kInlineValueBytesMax = size_t{64} << 10;

// The window: the most that a client may have in flight. Its send window
// (client/session/core/send_window.h) is normally far below. Steps of 20 us over 200 ms need
// 10,000.
inline constexpr uint32_t kWindowItems = 16'384;
inline constexpr uint64_t kWindowBytes = uint64_t{64} << 20;

// With this much not yet in a snapshot, the executor takes one ahead of schedule. A client buffers
// up to twice that for replay.
inline constexpr uint32_t kNotDurableItemsMax = 32'768;
inline constexpr uint64_t kNotDurableBytesMax = uint64_t{64} << 20;  // of inline Puts

// An Open, which a gateway keeps for as long as its session lasts, and what stands in it.
inline constexpr size_t kOpenBytesMax = size_t{128} << 10;
inline constexpr size_t kOpenKernelUsesMax = 1000;
inline constexpr size_t kOpenNameBytesMax = 100;  // printable
inline constexpr size_t kSessionNameBytesMax = 64;
// Sessions that start together; more than an account may have by default would never start.
inline constexpr uint32_t kGangSizeMax = 64;

// Devices of one session, and axes of their mesh. More than the 54 of a shelf of nine nodes, few
// enough that a frame which goes to each of them is no burden.
inline constexpr uint32_t kSessionDevicesMax = 64;
inline constexpr size_t kMeshAxesMax = 4;

inline constexpr size_t kSessionIdBytes = 16;
inline constexpr size_t kTokenBytes = 16;
inline constexpr size_t kHashBytes = 32;

}  // namespace outboard::wire
