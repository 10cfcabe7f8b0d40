// The functions of NVIDIA's NCCL that nccl.h uses, declared here and loaded on first use, so that
// nothing of the vendor's is needed to build. Types and values are those of NCCL's binary
// interface; every 2.x has them from 2.14 on, the first with communicators that do not block.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace outboard::collective {

using ncclComm_t = struct ncclComm*;
struct ncclUniqueId {
  char internal[128];
};

enum ncclResult_t : int {  // others occur: ncclGetErrorString
  ncclSuccess = 0,
  ncclInProgress = 7,
};
enum ncclDataType_t : int { ncclInt8 = 0 };

// As 2.14 has it; a later library knows by `size` and `version` that the rest is not there.
struct ncclConfig_t {
  size_t size = sizeof(ncclConfig_t);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 21400;
  int blocking = 0;
};

inline constexpr int kNcclVersionLeast = 21400;

struct NcclApi {
  ncclResult_t (*ncclGetVersion)(int* version) = nullptr;
  ncclResult_t (*ncclGetUniqueId)(ncclUniqueId* id) = nullptr;
  ncclResult_t (*ncclCommInitRankConfig)(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                         ncclConfig_t* config) = nullptr;
  ncclResult_t (*ncclCommGetAsyncError)(ncclComm_t comm, ncclResult_t* error) = nullptr;
  ncclResult_t (*ncclCommAbort)(ncclComm_t comm) = nullptr;
  ncclResult_t (*ncclGroupStart)() = nullptr;
  ncclResult_t (*ncclGroupEnd)() = nullptr;
  ncclResult_t (*ncclSend)(const void* from, size_t count, ncclDataType_t type, int peer,
                           ncclComm_t comm, void* stream) = nullptr;
  ncclResult_t (*ncclRecv)(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                           void* stream) = nullptr;
  const char* (*ncclGetErrorString)(ncclResult_t result) = nullptr;
};

// Loads `library`, "libnccl.so.2" most often, which stays loaded.
// Errors: NOT_FOUND            no such library, or a function that it lacks: the name
//         FAILED_PRECONDITION  it is older than 2.14: both versions
absl::StatusOr<NcclApi> LoadNccl(const std::string& library);

// OK for ncclSuccess; else INTERNAL with `what` and NCCL's own words.
absl::Status NcclStatus(const NcclApi& api, ncclResult_t result, const std::string& what);

}  // namespace outboard::collective
