// What a tenant's blobs take, counted as they come and go.
#include "gateway/blobs/blob_index.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/gateway/support.h"

namespace outboard::gateway::test {
namespace {

constexpr TenantId kTenant{1};

wire::Hash Name(int64_t number) {
  wire::Hash hash{};
  hash[0] = static_cast<uint8_t>(number);
  return hash;
}

// Chunks that several blobs list, or one twice; blobs protected several times; chunks lost and
// uploaded again, with another size.
TEST(BlobIndexUsage, AnyHistory_IsCountedAsByAWalk) {
  Random random;
  BlobIndex index(random.OneIn(2) ? Charges{}
                                  : Charges{.object_bytes_min = 300, .list_entry_bytes = 200});
  std::vector<wire::Hash> held;  // as often as it is protected
  uint64_t protected_bytes_max = 0;
  for (int64_t step = 0; step < 5000; ++step) {
    const wire::Hash chunk = Name(random.Int(0, 15)), root = Name(random.Int(100, 115));
    switch (random.Int(0, 5)) {
      case 0:
        index.AddChunk(kTenant, chunk, static_cast<uint32_t>(random.Int(1, 1000)),
                       BlobIndex::ChunkState::kFresh, step);
        break;
      case 1: index.LoseChunk(kTenant, chunk, step); break;
      case 2: {
        BlobIndex::Blob blob{.used_ms = step};
        for (int64_t i = random.Int(1, 4); i > 0; --i) {
          const wire::Hash part = Name(random.Int(0, 15));
          if (index.FindChunk(kTenant, part) != nullptr) blob.chunks.push_back(part);
        }
        if (random.OneIn(2)) blob.origin = BlobOrigin::kSession;
        index.AddBlob(kTenant, root, std::move(blob));
        break;
      }
      case 3:
        if (index.Protect(kTenant, {&root, 1}).ok()) held.push_back(root);
        break;
      case 4: {
        if (held.empty()) break;
        const auto at = held.begin() + random.Int(0, std::ssize(held) - 1);
        const wire::Hash gone = *at;
        held.erase(at);
        index.Unprotect(kTenant, {&gone, 1}, step);
        if (random.OneIn(2)) index.RemoveIdle(kTenant, gone, BlobIndex::Origins::kSession);
        break;
      }
      case 5:
        if (random.OneIn(4)) index.Evict(kTenant, step);
        break;
    }
    const BlobIndex::Usage usage = index.UsageOf(kTenant), walked = index.RecountUsage(kTenant);
    ASSERT_EQ(usage.used_bytes, walked.used_bytes) << step;
    ASSERT_EQ(usage.protected_bytes, walked.protected_bytes) << step;
    ASSERT_EQ(usage, walked) << step;
    protected_bytes_max = std::max(protected_bytes_max, usage.protected_bytes);
  }
  EXPECT_GT(protected_bytes_max, 0u);
}

}  // namespace
}  // namespace outboard::gateway::test
