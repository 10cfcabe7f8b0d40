#include "tests/bench/fork_figures.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "client/nn/kept.h"
#include "client/session/session.h"
#include "client/tensor/session_scope.h"
#include "client/tensor/tensor.h"
#include "tests/bench/cloud.h"
#include "tests/bench/report.h"

namespace outboard::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Sessions = std::vector<std::unique_ptr<Session>>;

constexpr int kForks = 10, kArrays = 16;
constexpr int64_t kElements = int64_t{1} << 24;  // 64 MiB of f32: together a GiB

void Close(Sessions sessions) {
  for (const std::unique_ptr<Session>& session : sessions) OB_CHECK(session->Close().ok());
}

double Ms(const absl::StatusOr<Sessions>& forks, Clock::time_point begin) {
  OB_CHECK(forks.ok());
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

}  // namespace

void ForkFigures() {
  const Cloud cloud(1, {},
                    {"--devices", absl::StrCat(kForks + 1), "--session-memory", "1200MiB",
                     "--snapshot-every", "5"});
  session::SessionOptions options;
  options.target = cloud.target();
  options.key = cloud.key();
  absl::StatusOr<std::unique_ptr<Session>> opened = Session::Connect(options);
  OB_CHECK(opened.ok());
  const std::shared_ptr<Session> session = *std::move(opened);
  const SessionScope scope(session);
  nn::StateDict state;
  for (int i = 0; i < kArrays; ++i)
    state.emplace_back(absl::StrCat("w", i), Tensor::rand({kElements}));
  keep(state);
  // Blobs are known from now on: to the gateway, and to the worker's cache.
  const Clock::time_point first_at = Clock::now();
  absl::StatusOr<Sessions> first = session->Fork(1);
  const double first_ms = Ms(first, first_at);
  Close(*std::move(first));

  const uint64_t sent = session->stats().bytes_up;
  const Clock::time_point begin = Clock::now();
  absl::StatusOr<Sessions> forks = session->Fork(kForks);
  const double ten_ms = Ms(forks, begin);
  uint64_t bytes_up = session->stats().bytes_up - sent;
  for (const std::unique_ptr<Session>& fork : *forks) {
    bytes_up += fork->stats().bytes_up;
    OB_CHECK(fork->Kept().size() == kArrays);
  }
  const std::string note =
      absl::StrFormat("1 GiB in %d arrays; the first fork, which stores it: %.1f s", kArrays,
                      first_ms / 1e3);
  Report("fork_ten_s", ten_ms / 1e3, "s", "", note);
  Report("fork_bytes_up", static_cast<double>(bytes_up), "B", "", "of ten forks");
  Close(*std::move(forks));
}

}  // namespace outboard::bench
