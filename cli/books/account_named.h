// The account that a command is about, by its name. Whoever names one that is not there is told
// which there are: an operator does not have the names of all in mind.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "gateway/accounts/accounts.h"

namespace outboard::cli {

// Errors: NOT_FOUND  there is no such account; the message names those that there are in `folder`,
//                    a data folder, and how to choose one
absl::StatusOr<gateway::Tenant> AccountNamed(gateway::Accounts& accounts, const std::string& name,
                                             const std::string& folder);

}  // namespace outboard::cli
