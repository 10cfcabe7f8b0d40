#include "client/session/stored_arrays.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "client/files/store_client.h"
#include "compiler/ir/dtype.h"

namespace outboard::transport {

namespace {

// Dimensions of a dtype that are as long as the bytes: what comes from the cloud is checked here,
// too.
bool IsArray(const proto::Checkpoint::Entry& entry) {
  if (entry.dtype() == 0 || entry.dtype() >= kDTypeCount || entry.blob_root().size() != 32)
    return false;
  uint64_t bytes = static_cast<uint64_t>(ByteWidth(static_cast<DType>(entry.dtype())));
  for (const uint64_t dim : entry.dims()) {
    if (dim > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) ||
        __builtin_mul_overflow(bytes, dim, &bytes))
      return false;
  }
  return bytes == entry.size_bytes();
}

}  // namespace

absl::StatusOr<std::vector<StoredArray>> StoredArrays(const std::shared_ptr<grpc::Channel>& channel,
                                                      const std::string& key,
                                                      const std::string& name) {
  OB_ASSIGN_OR_RETURN(const proto::StoreGetReply got, blobs::StoreClient(channel, key).Get(name));
  if (!got.checkpoint().file_name().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is a file as it is, not arrays; `outboard pull` brings it"));
  }
  std::vector<StoredArray> arrays;
  for (const proto::Checkpoint::Entry& entry : got.checkpoint().entries()) {
    if (!IsArray(entry)) {
      return absl::DataLossError(
          absl::StrCat("entry ", arrays.size(), " of ", name, " is no array"));
    }
    arrays.push_back({entry.name(),
                      static_cast<DType>(entry.dtype()),
                      {entry.dims().begin(), entry.dims().end()},
                      entry.size_bytes(),
                      entry.blob_root()});
  }
  return arrays;
}

}  // namespace outboard::transport
