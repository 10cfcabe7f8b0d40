// What the search in idle time needs of its supervisor: the turn of one account, and compilers that
// take only the processor time that nobody else wants.
#pragma once

#include <memory>
#include <vector>

#include "worker/kernels/account_kernels.h"
#include "worker/tuning/idle_searcher.h"

namespace outboard::worker {

// As IdleSearcherOptions::prepare. `accounts` lives longer. Candidates are compiled on `cores`, the
// search process's own; empty: all.
std::unique_ptr<SearchJob> PrepareSearch(AccountKernels& accounts, bool new_round,
                                         const std::vector<int>& cores);

}  // namespace outboard::worker
