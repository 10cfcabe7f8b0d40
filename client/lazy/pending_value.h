// A requested value: in flight, arrived, or failed. Shared by its CloudBuffer and the futures;
// dropped with the last of them.
//
// Errors: those of Session::Await, with the user's line (client/session/core/failure.h);
// INTERNAL if the received value does not match the graph. Threads: one at a time.
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
  DType dtype = DType::kVoid;  // the expected dtype
  std::vector<int64_t> dims;
  std::optional<absl::StatusOr<HostTensor>> answer;
  bool interrupted = false;  // `answer` holds the interruption; the next Wait starts over

  PendingValue() = default;
  PendingValue(const PendingValue&) = delete;
  PendingValue& operator=(const PendingValue&) = delete;
  ~PendingValue();

  bool has_come() const { return answer.has_value() && !interrupted; }
  bool ready() const { return has_come() || session->Ready(seq, index); }
  absl::StatusOr<HostTensor>& Wait();
};

// Registers that `buffer` will be answered as (seq, index).
void Expect(CloudBuffer& buffer, uint64_t seq, uint32_t index);

// Requests those that were not requested yet, in one message. Throws Error.
void Ask(std::span<const std::shared_ptr<CloudBuffer>> buffers, const At& at);

}  // namespace outboard::internal
