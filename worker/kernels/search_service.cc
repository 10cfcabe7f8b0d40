#include "worker/kernels/search_service.h"

#include <sys/socket.h>

#include <optional>
#include <utility>

#include "worker/kernels/kernel_service.h"
#include "worker/tuning/tuner.h"

namespace outboard::worker {
namespace {

class AccountSearch final : public SearchJob {
 public:
  AccountSearch(AccountKernels::SearchTurn turn, std::vector<int> cores)
      : turn_(std::move(turn)), cores_(std::move(cores)) {}

  // A process that gets no service sees its socket close, and ends with an error; else it would
  // wait for ever.
  void Begin(const ChildProcess& process) override {
    service_ =
        KernelService::StartFor(process,
                                {.warm = false,
                                 .background = true,
                                 .rights = {.width_max = kIdleSearchWidth, .takes_demands = true},
                                 .cores = cores_},
                                /*tunes=*/true, turn_.files);
    if (service_ == nullptr) shutdown(process.fd(), SHUT_RDWR);
  }

 private:
  const AccountKernels::SearchTurn turn_;
  const std::vector<int> cores_;
  std::unique_ptr<KernelService> service_;
};

}  // namespace

std::unique_ptr<SearchJob> PrepareSearch(AccountKernels& accounts, bool new_round,
                                         const std::vector<int>& cores) {
  std::optional<AccountKernels::SearchTurn> turn = accounts.NextSearch(new_round);
  if (!turn.has_value()) return nullptr;
  return std::make_unique<AccountSearch>(*std::move(turn), cores);
}

}  // namespace outboard::worker
