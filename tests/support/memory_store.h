// A blob store in memory, for tests of an executor core: stores the blobs of a PersistRequest, as a
// snapshot writer and a gateway do, and answers a restored core's requests.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "tests/support/device.h"
#include "wire/merkle.h"
#include "worker/executor/executor_core.h"
#include "worker/session/persist_request.h"

namespace outboard::test {

enum class BlobNames {
  kHashes,   // as production's
  kInOrder,  // other bytes have other names: to hash them would take longer than to simulate them
};

class MemoryStore {
 public:
  explicit MemoryStore(BlobNames names = BlobNames::kHashes) : names_(names) {}
  MemoryStore(const MemoryStore&) = delete;
  MemoryStore& operator=(const MemoryStore&) = delete;

  // The manifest's root.
  std::string Keep(const worker::PersistRequest& request) {
    std::vector<std::string> roots;
    for (const worker::DeviceArrayPtr& array : request.arrays)
      roots.push_back(AddArray(*array));
    return Add(request.ManifestBytes(roots));
  }

  const std::string* Find(const std::string& root) const {
    const auto found = blobs_.find(root);
    return found != blobs_.end() ? &found->second : nullptr;
  }

  absl::StatusOr<runtime::DeviceBuffer> Read(const worker::BlobWant& want,
                                             worker::Engine& engine) const {
    const std::string* const bytes = Find(want.root);
    if (bytes == nullptr || (want.size_bytes != 0 && want.size_bytes != bytes->size()))
      return absl::NotFoundError("no such blob");
    std::string read = *bytes;
    if (want.is_part) {
      read = bytes->substr(want.offset, want.bytes);
      read.resize(want.stored_bytes);
    }
    OB_ASSIGN_OR_RETURN(runtime::DeviceBuffer buffer,
                        engine.NewBuffer(static_cast<int64_t>(read.size())));
    OB_RETURN_IF_ERROR(engine.device().Upload(buffer.address(), read));
    return buffer;
  }

  // Serves requests until there are none left.
  void Answer(worker::ExecutorCore& core, worker::Engine& engine,
              const worker::ExecutorCore::SendFrame& send) const {
    for (std::vector<worker::BlobWant> wants = core.TakeBlobWants(); !wants.empty();
         wants = core.TakeBlobWants())
      for (const worker::BlobWant& want : wants) core.OnBlob(want.key, Read(want, engine), send);
  }

 private:
  // From where it lies.
  std::string AddArray(const worker::DeviceArray& array) {
    const int64_t bytes = array.bytes();
    if (bytes == 0) return Add("");
    std::string root;
    OB_CHECK_OK(
        array.device().Download(array.address(), bytes, bytes, [&](std::string_view whole) {
          root = Add(whole);
          return absl::OkStatus();
        }));
    return root;
  }

  // Most of a snapshot is what the one before had; to hash it anew takes longer than all else.
  std::string Add(std::string_view bytes) {
    const auto key = [](std::string_view of) { return absl::string_view(of.data(), of.size()); };
    if (const auto known = roots_.find(key(bytes)); known != roots_.end()) return known->second;
    const std::string root = NameOf(bytes);
    const auto blob = blobs_.try_emplace(root, bytes).first;
    roots_.emplace(key(blob->second), root);
    return root;
  }

  std::string NameOf(std::string_view bytes) const {
    if (names_ == BlobNames::kHashes)
      return std::string(wire::AsBytes(wire::NameBlob(bytes).root));
    std::string name = std::to_string(blobs_.size());
    name.resize(wire::kHashBytes, '.');
    return name;
  }

  const BlobNames names_;
  std::map<std::string, std::string> blobs_;
  // By the bytes, which are in blobs_. Absl hashes those of its own kind of view faster.
  absl::flat_hash_map<absl::string_view, std::string> roots_;
};

}  // namespace outboard::test
