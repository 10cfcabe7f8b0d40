// What a tenant may store: bytes, objects, and entries in lists of chunks. 0 is no limit.
#include "absl/strings/str_cat.h"
#include "gateway/blobs/blob_store.h"

namespace outboard::gateway {

absl::Status BlobStore::CheckQuota(TenantId tenant, uint64_t reserved_bytes,
                                   size_t list_entries) const {
  const BlobIndex::Usage usage = index_.UsageOf(tenant);
  constexpr char kWhatToDo[] = "; `outboard store ls` shows what could be removed";
  if (const uint64_t quota = options_.quota_bytes;
      quota > 0 && usage.used_bytes + reserved_bytes > quota) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the quota of ", quota, " bytes is used up: ", usage.used_bytes,
                     " stored, of which ", usage.protected_bytes, " under names or in use, ",
                     reserved_bytes, " being written", kWhatToDo));
  }
  if (options_.objects_max > 0 && usage.objects >= options_.objects_max) {
    return absl::ResourceExhaustedError(absl::StrCat("the quota of ", options_.objects_max,
                                                     " objects is used up: ", usage.objects,
                                                     " chunks and blobs are stored", kWhatToDo));
  }
  if (options_.list_entries_max > 0 &&
      usage.list_entries + list_entries > options_.list_entries_max)
    return absl::ResourceExhaustedError(absl::StrCat(
        "the quota of ", options_.list_entries_max, " entries in lists of chunks is used up: ",
        usage.list_entries, " stored, ", list_entries, " more wanted", kWhatToDo));
  return absl::OkStatus();
}

}  // namespace outboard::gateway
