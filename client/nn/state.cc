#include "client/nn/state.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

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

void load_state_dict(const StateDict& state, const StateDict& values, At at) {
  const std::map<std::string, Tensor> by_name(values.begin(), values.end());
  if (by_name.size() != state.size())
    ThrowInvalid(at, absl::StrCat("load_state_dict: ", by_name.size(), " tensors for a model of ",
                                  state.size()));
  for (const auto& [name, tensor] : state) {
    const auto found = by_name.find(name);
    if (found == by_name.end())
      ThrowInvalid(at, absl::StrCat("load_state_dict: no tensor is named ", name));
    if (found->second.shape(at) != tensor.shape(at))
      ThrowInvalid(at, absl::StrCat("load_state_dict: ", name, " has the shape [",
                                    absl::StrJoin(tensor.shape(at), ", "), "], not [",
                                    absl::StrJoin(found->second.shape(at), ", "), "]"));
  }
  for (const auto& [name, tensor] : state) Tensor(tensor).assign(Arg(by_name.at(name), at));
}

}  // namespace outboard::nn
