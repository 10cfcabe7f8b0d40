#include "client/session/core/failure.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/printable.h"
#include "wire/status_code.h"

namespace outboard::session {

namespace {

constexpr char kPayload[] = "outboard/failure";  // a Failed with the fields of Failure
constexpr size_t kNameBytesMax = 100, kMessageBytesMax = 4096;

}  // namespace

absl::Status StatusOf(const proto::Failed& failed) {
  Failure failure;
  failure.seq = failed.cause_seq() == 0 ? failed.seq() : failed.cause_seq();
  if (!failed.op().empty()) failure.node = failed.node();
  failure.op = Printable(failed.op(), kNameBytesMax);
  failure.worker = Printable(failed.worker(), kNameBytesMax);
  failure.retryable = failed.retryable();

  std::vector<std::string> where;
  if (failure.node) where.push_back(absl::StrCat("node ", *failure.node, ", ", failure.op));
  if (failure.seq != 0) where.push_back(absl::StrCat("item ", failure.seq));
  if (!failure.worker.empty()) where.push_back("worker " + failure.worker);
  if (failure.retryable)
    where.push_back(wire::CodeFromWire(failed.code()) == absl::StatusCode::kResourceExhausted
                        ? "a retry may succeed once memory is free"
                        : "a retry may succeed");
  // What a compiler says has lines.
  std::string message = PrintableLines(failed.message(), kMessageBytesMax);
  if (!where.empty()) absl::StrAppend(&message, " (", absl::StrJoin(where, "; "), ")");

  absl::Status status(wire::CodeFromWire(failed.code()), message);
  if (status.ok()) status = absl::InternalError("a failure without a code");
  return failure.seq == 0 ? status : WithFailure(std::move(status), failure);
}

absl::Status WithFailure(absl::Status status, const Failure& failure) {
  proto::Failed fields;
  fields.set_seq(failure.seq);
  if (failure.node) fields.set_node(*failure.node + 1);  // 0: none
  fields.set_op(failure.op);
  fields.set_worker(failure.worker);
  fields.set_retryable(failure.retryable);
  const std::string text = fields.SerializeAsString();
  status.SetPayload(kPayload, absl::Cord(absl::string_view(text)));
  return status;
}

std::optional<Failure> FailureOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kPayload);
  proto::Failed fields;
  if (!payload || !fields.ParseFromString(std::string(*payload))) return std::nullopt;
  Failure failure;
  failure.seq = fields.seq();
  if (fields.node() > 0) failure.node = fields.node() - 1;
  failure.op = fields.op();
  failure.worker = fields.worker();
  failure.retryable = fields.retryable();
  return failure;
}

void Provenance::Remember(uint64_t seq, std::shared_ptr<const RunOrigin> origin) {
  ++steps_;
  if (origin == nullptr) return;
  runs_.push_back({seq, steps_, std::move(origin)});
  if (runs_.size() > kRunsRememberedMax) runs_.pop_front();
}

const Provenance::Run* Provenance::Find(uint64_t seq) const {
  const auto run =
      std::lower_bound(runs_.begin(), runs_.end(), seq,
                       [](const Run& of, uint64_t wanted) { return of.seq < wanted; });
  return run == runs_.end() || run->seq != seq ? nullptr : &*run;
}

std::string Provenance::LineOf(uint64_t seq, uint32_t node) const {
  const Run* const run = Find(seq);
  if (run == nullptr) return "";
  const std::string line = run->origin->WrittenAt(node);
  return line.empty() ? run->origin->SentAt() : line;
}

absl::Status Provenance::Explain(const absl::Status& status) const {
  const std::optional<Failure> failure = FailureOf(status);
  if (!failure || failure->seq == 0) return status;
  const Run* const run = Find(failure->seq);
  if (run == nullptr) return status;
  std::string message =
      absl::StrCat(status.message(), "; in step ", run->step, ", sent at ", run->origin->SentAt());
  if (failure->node)
    if (const std::string line = run->origin->WrittenAt(*failure->node); !line.empty())
      absl::StrAppend(&message, ", by what is written at ", line);
  Failure said = *failure;
  said.seq = 0;  // explained: once is enough
  return WithFailure(absl::Status(status.code(), message), said);
}

}  // namespace outboard::session
