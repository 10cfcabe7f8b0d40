// Products that programs are written with: of matrices and integers, attention, convolutions.
// Weights keep the size of what they are multiplied with, so that sums do not grow.
#include <algorithm>
#include <cmath>

#include "client/ops/product/product.h"
#include "tests/compiler/program_writer.h"

namespace outboard::test {

std::string ProgramWriter::Act(Tensor& t, double& size) {
  switch (r_.Below(narrow_ && with_gradients_ ? 5 : 7)) {
    case 0: t = t.gelu(); return ".gelu()";
    case 1: t = t.silu(); return ".silu()";
    case 2:
      t = t.tanh();
      size = 1;
      return ".tanh()";
    case 3:
      t = t.sigmoid();
      size = 1;
      return ".sigmoid()";
    case 4: return "";
    case 5: t = t.relu(); return ".relu()";
    default:
      t = t.relu().square();
      size *= size;
      return ".relu().square()";
  }
}

void ProgramWriter::Linear() {
  Value x = Pick();
  if (x.t.rank() == 0) return;
  bool across = false;
  if (x.t.rank() == 2 && r_.OneIn(4)) {
    x = {x.t.transpose(), x.name + ".T", x.size};
    across = true;
  }
  const Dims dims = x.t.shape();
  const int64_t k = dims.back(), rows = Count(dims) / k;
  const int64_t n = !across && r_.OneIn(4) ? k : Columns(rows, k);
  if (n == 0 || k * n > 2 * kElementsMax || !Spend(static_cast<double>(rows * k * n))) return;
  const bool wide = narrow_ && r_.OneIn(2);
  const bool grouped = dims.size() == 3 && r_.OneIn(5), turned = r_.OneIn(2);
  Dims of_w = turned ? Dims{n, k} : Dims{k, n};
  if (grouped) of_w.insert(of_w.begin(), dims[0]);
  const NamedTensor w = Weight(of_w, k);
  const std::optional<DType> sums = wide ? std::optional(DType::kF32) : std::nullopt;
  Tensor y = x.t.matmul(turned ? w.t.transpose() : w.t, sums);
  std::string text = absl::StrCat(x.name, " @ ", w.name, turned ? ".T" : "", wide ? " in f32" : "");
  double size = x.size;
  if (r_.OneIn(2)) {
    const NamedTensor bias = Weight({n}, 3);
    y = y + bias.t;
    absl::StrAppend(&text, " + ", bias.name);
  }
  if (r_.OneIn(2)) text = absl::StrCat("(", text, ")", Act(y, size));
  if (n == k && !across && r_.OneIn(2)) {
    y = x.t + y;
    text = absl::StrCat(x.name, " + ", text);
  }
  if (wide && r_.OneIn(2)) {
    y = y.cast(dtype_);
    text = absl::StrCat("(", text, ").cast()");
  }
  Keep(y, size, text);
}

void ProgramWriter::Together() {
  const Value x = Pick();
  if (x.t.rank() < 2) return;
  const Dims dims = x.t.shape();
  const int64_t n = dims[dims.size() - 2], k = dims.back(), batch = Count(dims) / n / k;
  const bool across = r_.OneIn(2);
  const int64_t side = across ? k : n, depth = across ? n : k;
  if (batch * side * side > kElementsMax ||
      !Spend(static_cast<double>(batch * side * side * depth)))
    return;
  const double scale = 1 / std::sqrt(static_cast<double>(depth));
  const Tensor t = x.t.transpose();
  if (!across && r_.OneIn(3) && Spend(static_cast<double>(batch * side * side * depth))) {
    Keep((x.t.matmul(t) * scale).softmax().matmul(x.t), x.size,
         absl::StrCat("softmax(", x.name, " @ ", x.name, ".T * 1/sqrt(k)) @ ", x.name));
    return;
  }
  Keep((across ? t.matmul(x.t) : x.t.matmul(t)) * scale, x.size * x.size,
       across ? absl::StrCat(x.name, ".T @ ", x.name, " * 1/sqrt(k)")
              : absl::StrCat(x.name, " @ ", x.name, ".T * 1/sqrt(k)"));
}

void ProgramWriter::Gated() {
  const Value x = Pick();
  if (x.t.rank() == 0) return;
  const int64_t k = x.t.shape().back(), rows = Count(x.t.shape()) / k;
  const int64_t n = Columns(rows, 2 * k);
  if (n == 0 || !Spend(static_cast<double>(2 * rows * k * n))) return;
  if (r_.OneIn(2)) {
    const NamedTensor w = Weight({k, 2 * n}, k);
    const Tensor y = x.t.matmul(w.t);
    Keep(y.slice(-1, 0, n).silu() * y.slice(-1, n, 2 * n), x.size * x.size,
         absl::StrCat("silu(y[:n]) * y[n:], y = ", x.name, " @ ", w.name));
  } else {
    const NamedTensor a = Weight({k, n}, k), b = Weight({n, k}, k);
    Keep(x.t.matmul(a.t).silu() * x.t.matmul(b.t.transpose()), x.size * x.size,
         absl::StrCat("silu(", x.name, " @ ", a.name, ") * (", x.name, " @ ", b.name, ".T)"));
  }
}

void ProgramWriter::Added() {
  const Value x = Pick();
  if (x.t.rank() == 0) return;
  const int64_t k = x.t.shape().back(), rows = Count(x.t.shape()) / k;
  const int64_t n = Columns(rows, 2 * k);
  if (n == 0 || !Spend(static_cast<double>(2 * rows * k * n))) return;
  const NamedTensor w = Weight({k, n}, k);
  if (r_.OneIn(2)) {
    const int64_t rank = std::vector<int64_t>{1, 4, 8, 16, 17, 64}[r_.Below(6)];
    const NamedTensor a = Weight({k, rank}, k), b = Weight({rank, n}, rank);
    Keep(x.t.matmul(w.t) + x.t.matmul(a.t).matmul(b.t), 2 * x.size,
         absl::StrCat(x.name, " @ ", w.name, " + ", x.name, " @ ", a.name, " @ ", b.name));
  } else {
    Dims of_y = x.t.shape();
    of_y.back() = Size(1, std::min<int64_t>(300, kElementsMax / rows));
    const NamedTensor y = Floats(of_y), v = Weight({of_y.back(), n}, of_y.back());
    Keep(x.t.matmul(w.t) + y.t.cast(x.t.dtype()).matmul(v.t), 2 * x.size,
         absl::StrCat(x.name, " @ ", w.name, " + ", y.name, " @ ", v.name));
  }
}

void ProgramWriter::Quantized() {
  const Value x = Pick();
  if (x.t.rank() == 0) return;
  const int64_t k = x.t.shape().back(), rows = Count(x.t.shape()) / k;
  const int64_t n = Columns(rows, k);
  if (n == 0 || !Spend(static_cast<double>(rows * k * n))) return;
  const double small = 1 / std::sqrt(static_cast<double>(k)) / 5;
  const Tensor w = Input({n, k}, DType::kI8, {.low = -8, .high = 7});
  const std::string name = Named(w, "q");
  if (k % 32 == 0 && r_.OneIn(2)) {
    const NamedTensor scales = Floats({n, k / 32, 1}, small);
    const Tensor m = (w.cast(dtype_).reshape({n, k / 32, 32}) * scales.t).reshape({n, k});
    Keep(x.t.matmul(m.transpose()), x.size,
         absl::StrCat(x.name, " @ (", name, " * ", scales.name, ").T, blocks of 32"));
  } else if (r_.OneIn(2)) {
    const NamedTensor scales = Floats({n, 1}, small);
    Keep(x.t.matmul((w.cast(dtype_) * scales.t).transpose()), x.size,
         absl::StrCat(x.name, " @ (", name, " * ", scales.name, ").T"));
  } else {
    const NamedTensor scales = Floats({n}, small);
    Keep(x.t.matmul(w.cast(dtype_).transpose()) * scales.t, x.size,
         absl::StrCat(x.name, " @ ", name, ".T * ", scales.name));
  }
}

void ProgramWriter::Integers() {
  const int64_t rows = Size(1, 257), k = Size(1, 513);
  const int64_t n = Columns(rows, k);
  if (n == 0 || rows * k > kElementsMax || n * k > kElementsMax ||
      !Spend(static_cast<double>(rows * k * n)))
    return;
  const DType of = r_.OneIn(2) ? DType::kI8 : DType::kU8;
  const Tensor a = Input({rows, k}, of, {.low = of == DType::kI8 ? -100 : 0, .high = 100}),
               b = Input({n, k}, DType::kI8, {.low = -100, .high = 100});
  const std::string left = Named(a, "q"), right = Named(b, "q");
  const Tensor y = a.cast(DType::kI32).matmul(b.cast(DType::kI32).transpose());
  switch (r_.Below(5)) {
    case 0:
      results_.push_back({y.cumsum(0), absl::StrCat("(", left, " @ ", right, ".T).cumsum(0)")});
      break;
    case 1:
      results_.push_back({y.argmax(-1), absl::StrCat("(", left, " @ ", right, ".T).argmax(-1)")});
      break;
    case 2:
      results_.push_back({y.sum(0), absl::StrCat("(", left, " @ ", right, ".T).sum(0)")});
      break;
    case 3:
      results_.push_back({y.max(Axes(0)), absl::StrCat("(", left, " @ ", right, ".T).max(0)")});
      break;
    default: break;
  }
  results_.push_back({y, absl::StrCat(left, " @ ", right, ".T in i32")});
}

Tensor ProgramWriter::Mask(int64_t queries, int64_t keys, int64_t kind) {
  const Tensor i = Tensor::arange(queries).reshape({queries, 1}), j = Tensor::arange(keys);
  const Tensor seen = j <= i + (keys - queries);
  if (kind == 1) return seen;
  return seen & (j > i + (keys - queries) - 40);
}

void ProgramWriter::Attention() {
  const std::vector<int64_t> widths = {8, 16, 32, 33, 64, 64, 80, 128};
  int64_t heads = 1 + r_.Below(4);
  const int64_t d = r_.Of(widths);
  const int64_t batch = 1 + r_.Below(2);
  int64_t queries = Size(1, 300), keys = queries;
  const bool own_keys = r_.OneIn(2);
  if (own_keys) keys = Size(1, 1027);
  if (r_.OneIn(4)) queries = 1;
  int64_t groups = heads;
  if (heads % 2 == 0 && r_.OneIn(3)) groups = r_.OneIn(2) ? heads / 2 : 1;
  Tensor q, k, v;
  std::string text;
  // Packed, from a value of three axes; or inputs.
  const auto x = PickWhere([](const Value& x) { return x.t.rank() == 3; });
  const bool packed = x && !own_keys && r_.OneIn(2);
  if (packed) {
    const Dims dims = x->t.shape();
    queries = keys = dims[1];
    groups = heads;
    const int64_t n = heads * d;
    if (dims[0] * queries * 3 * n > 2 * kElementsMax ||
        dims[0] * heads * queries * keys > 600'000 ||
        !Spend(static_cast<double>(dims[0] * queries * 3 * n * dims[2])))
      return;
    const NamedTensor w = Weight({dims[2], 3 * n}, dims[2]);
    const Tensor qkv =
        x->t.matmul(w.t, r_.OneIn(2) ? std::nullopt : std::optional(DType::kF32)).cast(dtype_);
    if (r_.OneIn(2)) {
      const Tensor parts = qkv.reshape({dims[0], queries, 3, heads, d}).permute({2, 0, 3, 1, 4});
      q = parts[0], k = parts[1], v = parts[2];
    } else {
      const auto part = [&](int64_t i) {
        return qkv.slice(-1, i * n, (i + 1) * n)
            .reshape({dims[0], queries, heads, d})
            .transpose(1, 2);
      };
      q = part(0), k = part(1), v = part(2);
    }
    text = absl::StrCat("q, k, v of ", x->name, " @ ", w.name, ", heads ", heads, ", width ", d);
  } else {
    if (batch * heads * keys * d > 2 * kElementsMax || batch * heads * queries * keys > 600'000)
      return;
    const bool turned = r_.OneIn(2);
    const auto matrix = [&](int64_t count, int64_t rows) {
      NamedTensor m = Floats(turned ? Dims{batch, rows, count, d} : Dims{batch, count, rows, d});
      if (with_gradients_) {
        m.t.requires_grad_();
        weights_.push_back(m.t);
      }
      absl::StrAppend(&text, m.name, turned ? "^(1,2) " : " ");
      return turned ? m.t.transpose(1, 2) : m.t;
    };
    q = matrix(heads, queries), k = matrix(groups, keys), v = matrix(groups, keys);
  }
  if (!Spend(static_cast<double>(2 * Count(q.shape()) * keys))) return;
  const double scale = 1 / std::sqrt(static_cast<double>(d));
  const int64_t mask = keys >= queries ? r_.Below(4) : 0;  // 1: causal, 2: a band
  Tensor y;
  if (r_.OneIn(3)) {
    AttentionOptions options{.is_causal = mask == 1 && keys == queries,
                             .enable_gqa = groups != heads};
    if (!options.is_causal && mask > 0 && mask < 3) options.mask = Mask(queries, keys, mask);
    if (mask == 3 && r_.OneIn(2)) {
      const NamedTensor bias = Floats({heads, queries, keys});
      options.mask = bias.t;
    }
    y = scaled_dot_product_attention(q, k, v, options);
    absl::StrAppend(&text, "scaled_dot_product_attention, mask ", mask);
  } else {
    if (groups != heads) {
      const Dims dims = k.shape();
      const auto spread = [&](const Tensor& t) {
        return t.unsqueeze(2)
            .expand({dims[0], groups, heads / groups, keys, d})
            .reshape({dims[0], heads, keys, d});
      };
      k = spread(k), v = spread(v);
    }
    const bool wide = narrow_ && r_.OneIn(2);
    Tensor scores =
        q.matmul(k.transpose(), wide ? std::optional(DType::kF32) : std::nullopt) * scale;
    absl::StrAppend(&text, "softmax(q @ k.T / sqrt(d)", wide ? " in f32" : "");
    if (r_.OneIn(5)) {
      scores = (scores * (1 / 20.0)).tanh() * 20.0;
      text += " capped";
    }
    if (r_.OneIn(5)) {
      const NamedTensor bias = Floats(
          r_.OneIn(2) ? Dims{heads, queries, keys} : Dims{heads, 1, keys}, 1, scores.dtype());
      scores = scores + bias.t;
      absl::StrAppend(&text, " + ", bias.name);
    }
    if (mask == 1 || mask == 2) {
      scores = Mask(queries, keys, mask).where(scores, r_.OneIn(2) ? -kInfinity : -1e4);
      absl::StrAppend(&text, ", mask ", mask);
    }
    const Tensor weights = scores.softmax();
    if (r_.OneIn(12)) results_.push_back({weights, "its weights"});
    y = weights.cast(dtype_).matmul(v);
    text += ") @ v";
  }
  if (r_.OneIn(2)) {
    const Dims dims = y.shape();
    y = y.transpose(1, 2).reshape({dims[0], dims[2], dims[1] * dims[3]});
    text += ", heads merged";
  }
  Keep(y, 1, text);
}

void ProgramWriter::Convolve() {
  auto x = PickWhere([](const Value& x) { return x.t.rank() == 4; });
  if (!x) {
    if (!r_.OneIn(3)) return;
    const int64_t channels = Size(1, 64);
    const NamedTensor image =
        Floats({1 + r_.Below(2), channels, 4 + r_.Below(14), 4 + r_.Below(14)});
    x = Value{image.t, image.name, 1};
  }
  const Dims dims = x->t.shape();
  const int64_t kernel = std::vector<int64_t>{1, 3, 3, 3, 5, 7, 2}[r_.Below(7)];
  const int64_t stride = 1 + r_.Below(2) * r_.Below(2), dilation = r_.OneIn(6) ? 2 : 1;
  const int64_t padding = r_.OneIn(3) ? 0 : kernel / 2;
  int64_t groups = 1;
  if (r_.OneIn(4)) {
    groups = r_.OneIn(2) ? dims[1] : 2;
    if (dims[1] % groups != 0) groups = 1;
  }
  const int64_t h = (dims[2] + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1,
                w = (dims[3] + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
  if (dims[2] + 2 * padding <= dilation * (kernel - 1) ||
      dims[3] + 2 * padding <= dilation * (kernel - 1) || h < 1 || w < 1)
    return;
  const int64_t depth = dims[1] / groups * kernel * kernel;
  int64_t filters = Columns(dims[0] * h * w, depth);
  if (filters > 256) filters = 256;
  filters = filters / groups * groups;
  if (filters == 0) filters = groups;
  if (!Spend(static_cast<double>(dims[0] * h * w * depth * filters)) ||
      dims[0] * filters * h * w > kElementsMax)
    return;
  const NamedTensor weight = Weight({filters, dims[1] / groups, kernel, kernel}, depth);
  NamedTensor bias;
  if (r_.OneIn(2)) bias = Weight({filters}, 3);
  Tensor y =
      x->t.conv2d(weight.t, bias.t,
                  {.groups = groups, .stride = stride, .dilation = dilation, .padding = padding});
  std::string text = absl::StrCat(x->name, ".conv2d(", weight.name, bias.name.empty() ? "" : ", ",
                                  bias.name, ", groups ", groups, ", stride ", stride,
                                  ", dilation ", dilation, ", padding ", padding, ")");
  double size = x->size;
  if (r_.OneIn(4) && dims[0] * h * w > 4) {
    const Tensor mean = y.mean({0, 2, 3}, true), centred = y - mean;
    y = centred * ((centred * centred).mean({0, 2, 3}, true) + 1e-3).rsqrt();
    size = 3;
    text = absl::StrCat("batch norm of ", text);
  }
  if (r_.OneIn(2)) text = absl::StrCat("(", text, ")", Act(y, size));
  Keep(y, size, text);
}

void ProgramWriter::Pool() {
  const auto x = PickWhere(
      [](const Value& x) { return x.t.rank() == 4 && x.t.shape()[2] > 3 && x.t.shape()[3] > 3; });
  if (!x) return;
  const Pool2dOptions options{
      .kernel = 2 + r_.Below(2), .stride = 1 + r_.Below(3), .padding = r_.Below(2)};
  if ((narrow_ && with_gradients_) || r_.OneIn(2))
    Keep(x->t.avg_pool2d(options), x->size,
         absl::StrCat(x->name, ".avg_pool2d(", options.kernel.h, ", stride ", options.stride.h,
                      ", padding ", options.padding.h, ")"));
  else
    Keep(x->t.max_pool2d(options), x->size,
         absl::StrCat(x->name, ".max_pool2d(", options.kernel.h, ", stride ", options.stride.h,
                      ", padding ", options.padding.h, ")"));
}

}  // namespace outboard::test
