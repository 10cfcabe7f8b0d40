// The messages of an ONNX file for outboard.onnx, read-only, under the names that onnx.proto gives
// them. Nothing is interpreted here but the unions: an attribute has one value, a dimension is a
// number, a name or unknown. What a tensor holds is seen through NumPy where it lies in the
// message, which lives as long as such an array.
//
// Errors: ValueError for bytes that are no such message, or whose nesting or size protobuf does not
// accept (2 GiB). Threads: the GIL is released while a file is parsed.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <limits>
#include <string>
#include <vector>

#include "onnx/onnx.pb.h"
#include "python/bindings/bindings.h"

namespace outboard::python {

namespace nb = nanobind;
using namespace nb::literals;  // NOLINT: names of arguments

namespace {

template <typename Message>
Message Parse(const nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>& bytes) {
  Message message;
  bool parsed = bytes.size() <= static_cast<size_t>(std::numeric_limits<int>::max());
  if (parsed) {
    const nb::gil_scoped_release release;
    parsed = message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  }
  if (!parsed) throw nb::value_error("not an ONNX file, or a damaged one");
  return message;
}

// An object of the message `field`, which keeps its parent alive.
template <typename Message>
nb::object Part(const Message& field, nb::handle parent) {
  return nb::cast(field, nb::rv_policy::reference_internal, parent);
}

template <typename Fields>
nb::list Parts(const Fields& fields, nb::handle parent) {
  nb::list parts;
  for (const auto& field : fields) parts.append(Part(field, parent));
  return parts;
}

template <typename Values>
nb::list Copies(const Values& values) {
  nb::list copies;
  for (const auto& value : values) copies.append(nb::cast(value));
  return copies;
}

nb::bytes BytesOf(const std::string& value) { return nb::bytes(value.data(), value.size()); }

nb::list BytesOf(const google::protobuf::RepeatedPtrField<std::string>& values) {
  nb::list list;
  for (const std::string& value : values) list.append(BytesOf(value));
  return list;
}

nb::object ValueOf(nb::handle self) {
  using onnx::AttributeProto;
  const auto& attribute = nb::cast<const AttributeProto&>(self);
  switch (attribute.type()) {
    case AttributeProto::FLOAT: return nb::float_(attribute.f());
    case AttributeProto::INT: return nb::int_(attribute.i());
    case AttributeProto::STRING: return BytesOf(attribute.s());
    case AttributeProto::TENSOR: return Part(attribute.t(), self);
    case AttributeProto::GRAPH: return Part(attribute.g(), self);
    case AttributeProto::TYPE_PROTO: return Part(attribute.tp(), self);
    case AttributeProto::FLOATS: return Copies(attribute.floats());
    case AttributeProto::INTS: return Copies(attribute.ints());
    case AttributeProto::STRINGS: return BytesOf(attribute.strings());
    case AttributeProto::TENSORS: return Parts(attribute.tensors(), self);
    case AttributeProto::GRAPHS: return Parts(attribute.graphs(), self);
    default: return nb::none();
  }
}

template <typename T>
nb::object View(const T* values, size_t count, nb::handle owner) {
  return nb::cast(nb::ndarray<nb::numpy, const T, nb::ndim<1>>(values, {count}, owner));
}

// As they are stored; all but one of these lists are empty in a valid tensor.
nb::object NumbersOf(nb::handle self) {
  const auto& tensor = nb::cast<const onnx::TensorProto&>(self);
  const auto view = [&self](const auto& values) {
    return View(values.data(), values.size(), self);
  };
  if (tensor.float_data_size() > 0) return view(tensor.float_data());
  if (tensor.int32_data_size() > 0) return view(tensor.int32_data());
  if (tensor.int64_data_size() > 0) return view(tensor.int64_data());
  if (tensor.double_data_size() > 0) return view(tensor.double_data());
  if (tensor.uint64_data_size() > 0) return view(tensor.uint64_data());
  return nb::none();
}

nb::object RawOf(nb::handle self) {
  const auto& tensor = nb::cast<const onnx::TensorProto&>(self);
  if (!tensor.has_raw_data()) return nb::none();
  return View(reinterpret_cast<const uint8_t*>(tensor.raw_data().data()), tensor.raw_data().size(),
              self);
}

nb::list DimsOf(const onnx::TensorShapeProto& shape) {
  nb::list dims;
  for (const auto& dim : shape.dim()) {
    if (dim.has_dim_value()) {
      dims.append(nb::cast(dim.dim_value()));
    } else if (dim.has_dim_param()) {
      dims.append(nb::cast(dim.dim_param()));
    } else {
      dims.append(nb::none());
    }
  }
  return dims;
}

template <typename Field>
nb::dict Entries(const Field& field) {
  nb::dict entries;
  for (const auto& entry : field) entries[nb::cast(entry.key())] = nb::cast(entry.value());
  return entries;
}

template <typename Field>
nb::dict Opsets(const Field& field) {
  nb::dict opsets;
  for (const auto& opset : field) opsets[nb::cast(opset.domain())] = nb::cast(opset.version());
  return opsets;
}

// A property of `Message` by name: a string, a number or a list of them, copied.
#define OB_SCALAR(Message, name) def_prop_ro(#name, [](const onnx::Message& m) { return m.name(); })
#define OB_LIST(Message, name) \
  def_prop_ro(#name, [](const onnx::Message& m) { return Copies(m.name()); })
// A list of messages inside this one.
#define OB_PARTS(Message, name)                                      \
  def_prop_ro(#name, [](nb::handle self) {                           \
    return Parts(nb::cast<const onnx::Message&>(self).name(), self); \
  })

}  // namespace

void BindOnnx(nb::module_& module) {
  nb::module_ m =
      module.def_submodule("onnx", "The messages of ONNX files, as onnx.proto describes them.");

  nb::class_<onnx::TensorProto>(m, "TensorProto")
      .def_static("parse", Parse<onnx::TensorProto>, "data"_a)
      .OB_SCALAR(TensorProto, name)
      .OB_SCALAR(TensorProto, data_type)
      .OB_LIST(TensorProto, dims)
      .def_prop_ro("raw_data", RawOf, "Little-endian bytes, or None.")
      .def_prop_ro("numbers", NumbersOf, "What stands in one of the typed lists, or None.")
      .def_prop_ro("string_data",
                   [](const onnx::TensorProto& m) { return BytesOf(m.string_data()); })
      .def_prop_ro(
          "external_data",
          [](const onnx::TensorProto& m) {
            return m.data_location() == onnx::TensorProto::EXTERNAL
                       ? nb::object(Entries(m.external_data()))
                       : nb::none();
          },
          "Where the bytes are, if that is another file: location, offset, length.");

  nb::class_<onnx::SparseTensorProto>(m, "SparseTensorProto")
      .def_prop_ro("values",
                   [](nb::handle self) {
                     return Part(nb::cast<const onnx::SparseTensorProto&>(self).values(), self);
                   })
      .def_prop_ro("indices",
                   [](nb::handle self) {
                     return Part(nb::cast<const onnx::SparseTensorProto&>(self).indices(), self);
                   })
      .OB_LIST(SparseTensorProto, dims);

  nb::class_<onnx::TypeProto>(m, "TypeProto")
      .def_prop_ro(
          "kind",
          [](const onnx::TypeProto& m) {
            switch (m.value_case()) {
              case onnx::TypeProto::kTensorType: return "tensor";
              case onnx::TypeProto::kSequenceType: return "sequence";
              case onnx::TypeProto::kOptionalType: return "optional";
              case onnx::TypeProto::kMapType: return "map";
              case onnx::TypeProto::kSparseTensorType: return "sparse_tensor";
              default: return "unknown";
            }
          },
          "tensor, sequence, optional, map, sparse_tensor or unknown")
      .def_prop_ro(
          "elem_type",
          [](nb::handle self) -> nb::object {
            const auto& type = nb::cast<const onnx::TypeProto&>(self);
            if (type.has_tensor_type()) return nb::cast(type.tensor_type().elem_type());
            if (type.has_sequence_type()) return Part(type.sequence_type().elem_type(), self);
            if (type.has_optional_type()) return Part(type.optional_type().elem_type(), self);
            return nb::none();
          },
          "The data_type of a tensor, the TypeProto of what a sequence or an optional holds.")
      .def_prop_ro(
          "shape",
          [](const onnx::TypeProto& m) -> nb::object {
            if (!m.tensor_type().has_shape()) return nb::none();
            return DimsOf(m.tensor_type().shape());
          },
          "Numbers, names, and None where a dimension has neither; None where not even the rank is "
          "known.");

  nb::class_<onnx::ValueInfoProto>(m, "ValueInfoProto")
      .OB_SCALAR(ValueInfoProto, name)
      .def_prop_ro("type", [](nb::handle self) -> nb::object {
        const auto& info = nb::cast<const onnx::ValueInfoProto&>(self);
        return info.has_type() ? Part(info.type(), self) : nb::none();
      });

  nb::class_<onnx::AttributeProto>(m, "AttributeProto")
      .OB_SCALAR(AttributeProto, name)
      .OB_SCALAR(AttributeProto, ref_attr_name)
      .def_prop_ro("value", ValueOf,
                   "Strings are bytes; None where the type is unknown or the value sparse.");

  nb::class_<onnx::NodeProto>(m, "NodeProto")
      .OB_SCALAR(NodeProto, name)
      .OB_SCALAR(NodeProto, op_type)
      .OB_SCALAR(NodeProto, domain)
      .OB_LIST(NodeProto, input)
      .OB_LIST(NodeProto, output)
      .OB_PARTS(NodeProto, attribute);

  nb::class_<onnx::GraphProto>(m, "GraphProto")
      .OB_SCALAR(GraphProto, name)
      .OB_PARTS(GraphProto, node)
      .OB_PARTS(GraphProto, initializer)
      .OB_PARTS(GraphProto, sparse_initializer)
      .OB_PARTS(GraphProto, input)
      .OB_PARTS(GraphProto, output);

  nb::class_<onnx::FunctionProto>(m, "FunctionProto")
      .OB_SCALAR(FunctionProto, name)
      .OB_SCALAR(FunctionProto, domain)
      .OB_LIST(FunctionProto, input)
      .OB_LIST(FunctionProto, output)
      .OB_LIST(FunctionProto, attribute)
      .OB_PARTS(FunctionProto, node)
      .def_prop_ro("opset_import",
                   [](const onnx::FunctionProto& m) { return Opsets(m.opset_import()); });

  nb::class_<onnx::ModelProto>(m, "ModelProto")
      .def_static("parse", Parse<onnx::ModelProto>, "data"_a)
      .OB_SCALAR(ModelProto, ir_version)
      .OB_SCALAR(ModelProto, producer_name)
      .OB_SCALAR(ModelProto, domain)
      .OB_SCALAR(ModelProto, model_version)
      .def_prop_ro("metadata_props",
                   [](const onnx::ModelProto& m) { return Entries(m.metadata_props()); })
      .def_prop_ro("opset_import",
                   [](const onnx::ModelProto& m) { return Opsets(m.opset_import()); })
      .def_prop_ro("graph",
                   [](nb::handle self) {
                     return Part(nb::cast<const onnx::ModelProto&>(self).graph(), self);
                   })
      .OB_PARTS(ModelProto, functions);
}

#undef OB_SCALAR
#undef OB_LIST
#undef OB_PARTS

}  // namespace outboard::python
