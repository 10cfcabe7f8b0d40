#include "runtime/collective/nccl_api.h"

#include <dlfcn.h>

#include <type_traits>

#include "absl/strings/str_cat.h"

namespace outboard::collective {
namespace {

// NCCL's numbers: 2.14.3 is 21403.
std::string VersionText(int version) {
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

}  // namespace

absl::StatusOr<NcclApi> LoadNccl(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return absl::NotFoundError(absl::StrCat("NCCL: ", dlerror()));
  NcclApi api;
  std::string missing;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    if (function == nullptr && missing.empty()) missing = name;
  };
  find(api.ncclGetVersion, "ncclGetVersion");
  int version = 0;
  if (api.ncclGetVersion != nullptr && api.ncclGetVersion(&version) == ncclSuccess &&
      version < kNcclVersionLeast)
    return absl::FailedPreconditionError(
        absl::StrCat("NCCL ", VersionText(version), " of ", library, " is older than ",
                     VersionText(kNcclVersionLeast)));
  find(api.ncclGetUniqueId, "ncclGetUniqueId");
  find(api.ncclCommInitRankConfig, "ncclCommInitRankConfig");
  find(api.ncclCommGetAsyncError, "ncclCommGetAsyncError");
  find(api.ncclCommAbort, "ncclCommAbort");
  find(api.ncclGroupStart, "ncclGroupStart");
  find(api.ncclGroupEnd, "ncclGroupEnd");
  find(api.ncclSend, "ncclSend");
  find(api.ncclRecv, "ncclRecv");
  find(api.ncclGetErrorString, "ncclGetErrorString");
  if (!missing.empty())
    return absl::NotFoundError(absl::StrCat("NCCL: ", library, " has no ", missing));
  return api;
}

absl::Status NcclStatus(const NcclApi& api, ncclResult_t result, const std::string& what) {
  if (result == ncclSuccess) return absl::OkStatus();
  const char* const words = api.ncclGetErrorString(result);
  return absl::InternalError(absl::StrCat("NCCL: ", what, ": ", words != nullptr ? words : "",
                                          " (", static_cast<int>(result), ")"));
}

}  // namespace outboard::collective
