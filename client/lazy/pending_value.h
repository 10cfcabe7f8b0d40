// The answer to a question for a value: on its way, here, or why it will not come. Shared by the
// CloudBuffer that was asked for and the futures; forgotten with the last of them.
//
// Errors: those of Session::Await, told in the user's terms (provenance.h); INTERNAL where what
// came is not what the graph says. Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "client/session/current_session.h"
#include "client/tensor/error.h"
#include "compiler/ir/host_tensor.h"

namespace outboard::internal {

struct CloudBuffer;

struct PendingValue {
  std::shared_ptr<Session> session;
  uint64_t seq = 0;
  uint32_t index = 0;
  DType dtype = DType::kVoid;  // what must come
  std::vector<int64_t> dims;
  std::optional<absl::StatusOr<HostTensor>> answer;
  bool interrupted = false;  // `answer` says why it is not waited for; the next Wait begins anew

  PendingValue() = default;
  PendingValue(const PendingValue&) = delete;
  PendingValue& operator=(const PendingValue&) = delete;
  ~PendingValue();

  bool has_come() const { return answer.has_value() && !interrupted; }
  bool ready() const { return has_come() || session->Ready(seq, index); }
  absl::StatusOr<HostTensor>& Wait();
};

// `storage` will be answered as (seq, index).
void Expect(CloudBuffer& storage, uint64_t seq, uint32_t index);

// Asks for those that were not asked for yet, in one message. Throws Error.
void Ask(std::span<const std::shared_ptr<CloudBuffer>> storages, const At& at);

}  // namespace outboard::internal
