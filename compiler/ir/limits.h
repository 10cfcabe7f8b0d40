// Limits on the size of a graph, checked before anything else is done with it. Each number is
// quoted by the error that enforces it.
#pragma once

#include <cstdint>

namespace outboard::limits {

// Of one encoding: what a client sends, a gateway buffers and a decoder accepts.
inline constexpr int64_t kGraphBytesMax = 16 << 20;
inline constexpr int64_t kGraphNodesMax = 1 << 20;
inline constexpr int64_t kSourcesMax = 8;  // of an ordinary node
inline constexpr int64_t kVariadicSourcesMax =
    8192;                                // of SINK, TUPLE, CALL, FUNCTION: three outputs a weight
inline constexpr int64_t kArgsMax = 40;  // PAD and SHRINK of rank 16 need 32
inline constexpr int64_t kRankMax = 16;  // a convolution is 8 or 10 inside
inline constexpr int64_t kDimMax = (int64_t{1} << 31) - 1;
inline constexpr int64_t kVirtualElementsMax = int64_t{1}
                                               << 62;  // exclusive; a shape that is never stored
inline constexpr int64_t kStoredBytesMax = int64_t{1}
                                           << 40;  // of one buffer; quotas are below this
inline constexpr int64_t kVarSlotMax = 64;  // of a client's VARs
// The VAR of a device's rank, past the slots of clients; bound by the executor, never by a Run.
inline constexpr int64_t kRankSlot = kVarSlotMax;
inline constexpr int64_t kRanksMax = 1024;  // many shelves of 54 devices; one graph serves all
inline constexpr int64_t kMeshAxesMax = 4;  // nodes, devices of a node, and two to spare
inline constexpr int64_t kParamSlotMax = 8192;
// Of a kernel in one launch (compiler/copies.h): as many addresses as 4 KB of parameters hold,
// which every driver and device takes.
inline constexpr int64_t kParameterBytesMax = 4096;
// Buffers of one kernel on CUDA, so that they and four views of them (hopper/plan.h) fit there:
// the schedule makes no kernel with more where it finds a value to store on the way. The code
// generator refuses the others.
inline constexpr int64_t kKernelBuffersMax = 400;
inline constexpr int64_t kCopiesMin = 2, kCopiesMax = kParameterBytesMax / 8;
inline constexpr int kTupleCallsMax = 64;  // from a GETTUPLE to the TUPLE it reads
// Steps of all that is checked of a graph's nodes by more than a look at the node, while it is
// decoded, or written for devices: functions by a walk of their body's nodes and sources, and sums
// and products of dimensions by a walk of their terms. What is shared could make that quadratic.
inline constexpr int64_t kWalkStepsMax = 4 * kGraphNodesMax;
// Of one plan for several devices: nodes, their sources and their dimensions, those of bodies again
// for each way that they are called. With 16 dimensions that is 0.9 million nodes, of 4 all that a
// graph may have.
inline constexpr int64_t kPlannedPartsMax = 16 * kGraphNodesMax;
// The same of all plans that one is chosen from, some ten: once there are more, the best of those
// that were made is taken.
inline constexpr int64_t kComparedPartsMax = 64 * kGraphNodesMax;
// Layout hints on one value, on top of each other.
inline constexpr int kLayoutsTogetherMax = 64;

}  // namespace outboard::limits
