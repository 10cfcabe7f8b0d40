// What a supervisor reads of its children's sockets, in one place: bytes of a message, and fields
// (wire/field_count.h), which are counted before the message is parsed. A child may be hostile.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compiler/ir/limits.h"

namespace outboard::worker {

// Pieces of one StoreBlobs; more go in several. Each takes at most 64 bytes and 4 fields, and the
// supervisor some hundred bytes of memory.
inline constexpr size_t kStorePiecesMax = 100'000;
// Of an executor's event, the longest of which is a StoreBlobs.
inline constexpr uint32_t kFromExecutorBytesMax = 8u << 20;
inline constexpr size_t kFromExecutorFieldsMax = 5 * kStorePiecesMax;

// Of a line about a device: a driver's words, and the name of a kernel.
inline constexpr size_t kTroubleTextBytesMax = 2048;

// Of a request for kernels: the longest kernel that there can be, and its header. A batch of more
// kernels than fit is sent as several requests. A supervisor holds one request of each process.
inline constexpr uint32_t kKernelRequestBytesMax =
    static_cast<uint32_t>(outboard::limits::kGraphBytesMax) + (1u << 20);
// A client fills a request up to these; together with the limit of one kernel they leave room.
inline constexpr size_t kBatchKernelsMax = 512;
inline constexpr size_t kBatchBytesMax = size_t{4} << 20;
inline constexpr size_t kBatchDemandsMax = 64;  // of kDemandBytesMax each
inline constexpr size_t kBatchFindsMax = 512;
// Of what a driver links: one kernel's code, and all of a request's. A kernel of thousands of
// instructions has some 100 KiB.
inline constexpr size_t kLinkedBytesMax = size_t{8} << 20;
inline constexpr size_t kBatchLinkedMax = 256;
inline constexpr size_t kLinkedKeyBytes = 32;
// Candidates of a search: some for each processor, half a second's work.
inline constexpr size_t kBatchCandidatesMax = 16;
// A kernel of a batch is three fields; what stands beside them is a target of 17.
inline constexpr size_t kKernelRequestFieldsMax = 4 * kBatchKernelsMax;

// Of a request to a compile process and of its reply, which hold the kernels of one batch: 4 KiB to
// 50 KiB of code for each of at most some hundred kernels. A supervisor holds one for each
// executor.
inline constexpr uint32_t kCompileMessageBytesMax = 64u << 20;
// The fields of a reply to a request for so many kernels. A kernel has 14, and up to 42 for each
// view of a buffer that its launch takes, of which 4 KB of parameters hold 32 (MappedTensor): as
// many as one kernel can have, and for each as many as kernels of a few views have.
constexpr size_t CompileReplyFieldsMax(size_t kernels) { return 1500 + 256 * kernels; }
// Of a reply to a request for kernels: a batch as the compile process sent it, and its header.
inline constexpr uint32_t kKernelReplyBytesMax = kCompileMessageBytesMax + (1u << 20);

}  // namespace outboard::worker
