// Weights in files and in the cloud: what outboard.nn.state and outboard.checkpoint are made of.
#include <nanobind/stl/pair.h>

#include "absl/strings/str_cat.h"
#include "client/files/safetensors_header.h"
#include "client/nn/checkpoint.h"
#include "client/nn/files.h"
#include "client/nn/ggml.h"
#include "client/nn/kept.h"
#include "python/bindings/arguments.h"
#include "python/bindings/bindings.h"
#include "python/bindings/host_data.h"

namespace outboard::python {
namespace nb = nanobind;
using namespace nb::literals;  // NOLINT
namespace {

using Texts = std::vector<std::pair<std::string, std::string>>;

nn::Bytes BytesOf(nb::handle source) {
  if (nb::isinstance<Tensor>(source)) return nn::Bytes::OfTensor(nb::cast<Tensor>(source), Here());
  return nn::Bytes::OfFile(PathOf(source), Here());
}

nb::bytes Read(const nn::Bytes& bytes, uint64_t offset, uint64_t size) {
  const std::string read = bytes.Read(offset, size, Here());
  return nb::bytes(read.data(), read.size());
}

std::vector<Tensor> TensorsOf(const nn::Bytes& bytes, const std::vector<nb::tuple>& ranges) {
  std::vector<nn::Bytes::Range> wanted;
  for (const nb::tuple& range : ranges)
    wanted.push_back(
        {nb::cast<DType>(range[0]), nb::cast<Dims>(range[1]), nb::cast<uint64_t>(range[2])});
  return bytes.Tensors(wanted, Here());
}

nb::dict DictOf(const nn::StateDict& state) {
  nb::dict dict;
  for (const auto& [name, tensor] : state) dict[nb::cast(name)] = nb::cast(tensor);
  return dict;
}

nb::dict DictOf(const nn::Gguf& gguf) {
  nb::dict dict;
  for (const auto& [name, value] : gguf.metadata) {
    dict[nb::cast(name)] = std::visit(
        [](const auto& held) {
          if constexpr (std::is_same_v<std::decay_t<decltype(held)>, std::vector<bool>>) {
            nb::list list;
            for (const bool flag : held) list.append(flag);
            return nb::object(list);
          } else {
            return nb::object(nb::cast(held));
          }
        },
        value);
  }
  return dict;
}

nb::tuple LoadGguf(nb::handle source) {
  const nn::Gguf gguf = nb::isinstance<Tensor>(source) ? nn::load_gguf(BytesOf(source), Here())
                                                       : nn::load_gguf(PathOf(source), Here());
  return nb::make_tuple(DictOf(gguf), DictOf(gguf.tensors));
}

uint64_t SafetensorsHeaderBytes(const nb::bytes& first, uint64_t file_bytes) {
  const absl::StatusOr<uint64_t> bytes =
      files::SafetensorsHeaderBytes({first.c_str(), first.size()}, file_bytes);
  ThrowIfError(bytes.status(), Here());
  return *bytes;
}

}  // namespace

void BindState(nb::module_& module, TensorClass& tensor) {
  tensor.def(
      "replace", [](Tensor& x, const Tensor& other) -> Tensor& { return x.replace(other, Here()); },
      "x"_a, nb::rv_policy::none,
      "This tensor becomes `x`, type included; of the same shape. Lazy, as assign is.");

  nb::class_<nn::Bytes>(module, "Bytes",
                        "Bytes of which ranges are tensors: a file's (a path) or a uint8 tensor's.")
      .def("__init__",
           [](nn::Bytes* self, nb::handle source) { new (self) nn::Bytes(BytesOf(source)); })
      .def_prop_ro("size", &nn::Bytes::size)
      .def_prop_ro("name", &nn::Bytes::name)
      .def("__repr__",
           [](const nn::Bytes& bytes) {
             return absl::StrCat("<Bytes of ", bytes.name(), ", ", bytes.size(), ">");
           })
      .def("read", &Read, "offset"_a, "size"_a, "Fewer where there are no more.")
      .def("tensors", &TensorsOf, "ranges"_a,
           "One for each (dtype, shape, offset): nothing is read before something needs it.");

  module.def("safetensors_header_bytes", &SafetensorsHeaderBytes, "first"_a, "file_bytes"_a);
  module.def(
      "safetensors_load",
      [](const nn::Bytes& bytes) { return DictOf(nn::load_safetensors(bytes, Here())); },
      "bytes"_a);
  module.def(
      "safetensors_save",
      [](const nn::StateDict& state, const std::string& path, const Texts& metadata) {
        nn::save_safetensors(state, path, metadata, Here());
      },
      "state"_a, "path"_a, "metadata"_a);
  module.def("gguf_load", &LoadGguf, "source"_a);
  module.def(
      "ggml_dequantize",
      [](const Tensor& blocks, uint32_t code) {
        return nn::dequantize(blocks, static_cast<files::GgmlType>(code), Here());
      },
      "blocks"_a, "ggml_type"_a);

  module.def(
      "checkpoint_save",
      [](const std::string& name, const nn::StateDict& state) {
        const SavedBytes saved = save(name, state, Here());
        return nb::make_tuple(saved.total, saved.sent);
      },
      "name"_a, "state"_a);
  module.def(
      "keep", [](const nn::StateDict& state) { keep(state, Here()); }, "state"_a);
  module.def("kept", [] { return DictOf(kept(Here())); });
  module.def(
      "checkpoint_load", [](const std::string& name) { return DictOf(load(name, Here())); },
      "name"_a);
}

}  // namespace outboard::python
