#include "client/nn/state.h"

#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/lazy/call_site.h"

namespace outboard::nn {

std::string Join(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

void Add(StateDict& state, const std::string& prefix, const std::string& name,
         const Tensor& tensor) {
  if (!tensor.empty()) state.emplace_back(Join(prefix, name), tensor);
}

std::vector<Tensor> parameters(const StateDict& state) {
  std::vector<Tensor> tensors;
  for (const auto& [name, tensor] : state)
    if (tensor.requires_grad()) tensors.push_back(tensor);
  return tensors;
}

namespace {

constexpr size_t kNamesMax = 8;  // in a message

void AddList(std::vector<std::string>& parts, const std::string& what,
             const std::vector<std::string>& names) {
  if (names.empty()) return;
  const size_t shown = std::min(names.size(), kNamesMax);
  parts.push_back(absl::StrCat(
      what, " ", absl::StrJoin(names.begin(), names.begin() + shown, ", "),
      names.size() > shown ? absl::StrCat(" and ", names.size() - shown, " more") : ""));
}

std::string DimsOf(const Tensor& tensor) {
  return absl::StrCat("[", absl::StrJoin(tensor.shape(), ", "), "]");
}

}  // namespace

void load_state_dict(const StateDict& state, const StateDict& values, At at) {
  const CallSite site(at);
  const std::map<std::string, Tensor> wanted(state.begin(), state.end());
  std::map<std::string, Tensor> given;
  std::vector<std::string> missing, unexpected, twice, differ;
  for (const auto& [name, tensor] : values) {
    if (!given.emplace(name, tensor).second) twice.push_back(name);
    if (!wanted.contains(name)) unexpected.push_back(name);
  }
  for (const auto& [name, tensor] : state) {
    const auto found = given.find(name);
    if (found == given.end())
      missing.push_back(name);
    else if (found->second.shape() != tensor.shape())
      differ.push_back(
          absl::StrCat(name, " (", DimsOf(found->second), " for ", DimsOf(tensor), ")"));
  }
  std::vector<std::string> parts;
  AddList(parts, "missing", missing);
  AddList(parts, "unexpected", unexpected);
  AddList(parts, "given twice", twice);
  AddList(parts, "of another shape", differ);
  if (!parts.empty()) ThrowInvalid(absl::StrCat("load_state_dict: ", absl::StrJoin(parts, "; ")));
  for (const auto& [name, tensor] : state) Tensor(tensor).assign(given.at(name));
}

}  // namespace outboard::nn
