#include "worker/session/blob_part.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace outboard::worker {

absl::StatusOr<BlobPart> PartOf(const proto::Put& put, uint32_t rank) {
  BlobPart part{.bytes = put.total_bytes(),
                .stored_bytes = put.total_bytes(),
                .dims = {put.dims().begin(), put.dims().end()}};
  const uint64_t parts = put.parts();
  if (parts == 0) return part;
  if (part.dims.empty() || part.dims[0] <= 0 || rank >= parts ||
      put.total_bytes() % static_cast<uint64_t>(part.dims[0]) != 0)
    return absl::InvalidArgumentError(absl::StrCat("a Put of ", put.total_bytes(), " bytes in ",
                                                   parts, " parts, for rank ", rank));
  const auto rows = static_cast<uint64_t>(part.dims[0]);
  const uint64_t row_bytes = put.total_bytes() / rows, kept = (rows + parts - 1) / parts;
  const uint64_t begin = std::min(rank * kept, rows), end = std::min(begin + kept, rows);
  part.offset = begin * row_bytes;
  part.bytes = (end - begin) * row_bytes;
  part.stored_bytes = kept * row_bytes;
  part.dims[0] = static_cast<int64_t>(kept);
  return part;
}

std::string BlobKeyOf(const proto::Put& put) {
  if (put.parts() == 0) return put.blob_root();
  return absl::StrCat(put.blob_root(), " ", put.parts(), " of ",
                      put.dims_size() > 0 ? put.dims(0) : 0);
}

}  // namespace outboard::worker
