// The accounts file of a gateway that has run, for commands that read or change it beside the
// gateway.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cli/common.h"
#include "gateway/server/gateway.h"

namespace outboard::cli {

// `data`: as --data says; empty: the default folder.
// Errors: INVALID_ARGUMENT  no gateway has used that folder
inline absl::StatusOr<std::string> UsedAccountsFile(const std::string& data) {
  const std::string folder = DataFolderOr(data);
  std::string path = gateway::AccountsPath(folder);
  std::error_code error;
  if (std::filesystem::exists(path, error)) return path;
  return absl::InvalidArgumentError(
      absl::StrCat("no gateway has used ", folder, "; name the gateway's folder with --data"));
}

}  // namespace outboard::cli
