#include "worker/kernels/search_service.h"

#include <sys/socket.h>

#include <optional>
#include <utility>

#include "worker/kernels/kernel_service.h"

namespace outboard::worker {
namespace {

class AccountSearch final : public SearchJob {
 public:
  explicit AccountSearch(AccountKernels::SearchTurn turn) : turn_(std::move(turn)) {}

  // A process that gets no service sees its socket close, and ends with an error; else it would
  // wait for ever.
  void Begin(const ChildProcess& process) override {
    service_ = KernelService::StartFor(process, {.warm = false, .background = true},
                                       /*tunes=*/true, turn_.files);
    if (service_ == nullptr) shutdown(process.fd(), SHUT_RDWR);
  }

 private:
  const AccountKernels::SearchTurn turn_;
  std::unique_ptr<KernelService> service_;
};

}  // namespace

std::unique_ptr<SearchJob> PrepareSearch(AccountKernels& accounts, bool new_round) {
  std::optional<AccountKernels::SearchTurn> turn = accounts.NextSearch(new_round);
  if (!turn.has_value()) return nullptr;
  return std::make_unique<AccountSearch>(*std::move(turn));
}

}  // namespace outboard::worker
