#include "worker/kernels/search_service.h"

#include <optional>
#include <utility>

#include "worker/kernels/kernel_service.h"

namespace outboard::worker {
namespace {

class AccountSearch final : public SearchJob {
 public:
  explicit AccountSearch(AccountKernels::SearchTurn turn) : turn_(std::move(turn)) {}

  // A process that gets no service ends with an error.
  void Begin(const ChildProcess& process) override {
    service_ = KernelService::StartFor(process, {.warm = false, .background = true},
                                       /*tunes=*/true, turn_.files);
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
