// vectorize on leaves: a signature of core dimensions, nested vmaps over the rest.
#include <postern/ops.h>
#include <postern/transforms.h>

#include <map>

#include "core/check.h"
#include "core/lists.h"
#include "transform/walk.h"

namespace postern::detail {
using namespace internal;

namespace {

using Names = std::vector<std::string>;
using Sizes = std::map<std::string, std::int64_t>;

/// "(n,k),(k)->(n)": the names of the core dimensions of each argument and result.
struct CoreSignature {
  std::vector<Names> arguments, results;
};

class SignatureParser {
 public:
  explicit SignatureParser(const std::string& text) : text_(text) {}
  CoreSignature parse() {
    CoreSignature s{side(), {}};
    require(take('-') && take('>'), "'->'");
    s.results = side();
    require(at_ == text_.size(), "the end");
    return s;
  }

 private:
  std::vector<Names> side() {
    std::vector<Names> out;
    do out.push_back(dimensions());
    while (take(','));
    return out;
  }
  Names dimensions() {
    Names out;
    require(take('('), "'('");
    if (take(')')) return out;
    do out.push_back(name());
    while (take(','));
    require(take(')'), "')'");
    return out;
  }
  std::string name() {
    skip();
    std::string out;
    while (at_ < text_.size() && is_of_name(text_[at_])) out += text_[at_++];
    require(!out.empty(), "a name");
    return out;
  }
  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(char c) {
    skip();
    const bool found = at_ < text_.size() && text_[at_] == c;
    at_ += found;
    return found;
  }
  void require(bool ok, const char* what) const {
    check(ok, "vectorize: {} is expected at character {} of '{}'", what, at_, text_);
  }

  const std::string& text_;
  std::size_t at_ = 0;
};

/// Adds the sizes of the core dimensions of argument or result `i`, of which `dims` ends in them,
/// and refuses those that do not agree with others.
void add_sizes(Sizes& sizes, const Names& core, const Dims& dims, const char* what, std::size_t i,
               const std::string& text) {
  const std::size_t before = dims.size() - core.size();
  for (std::size_t d = 0; d < core.size(); ++d) {
    const std::int64_t size = dims[before + d];
    const auto [known, fresh] = sizes.emplace(core[d], size);
    check(known->second == size, "vectorize: dimension '{}' of '{}' is {} in {} {} and {} before",
          core[d], text, size, what, i, known->second);
  }
}

/// Returns the axes before the core ones, all broadcast against each other, and adds the sizes of
/// these; refuses arguments of which sizes do not agree. By "(n,k),(k)->(n)" f32[7,1,2,3] and
/// f32[5,3] have the loop axes {7,5}.
Dims loop_dims(const CoreSignature& s, const Tensors& x, const std::string& text, Sizes& sizes) {
  Dims loop;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Dims& dims = x[i].dims();
    const Names& core = s.arguments[i];
    check(dims.size() >= core.size(), "vectorize: argument {}, {}, has fewer axes than '{}' says",
          i, to_string(x[i].type()), text);
    add_sizes(sizes, core, dims, "argument", i, text);
    const std::size_t before = dims.size() - core.size();
    if (before > loop.size()) loop.insert(loop.begin(), before - loop.size(), 1);
    for (std::size_t d = 0; d < before; ++d) {
      std::int64_t& size = loop[loop.size() - before + d];
      check(size == dims[d] || size == 1 || dims[d] == 1,
            "vectorize: the axes of argument {}, {}, before its core dimensions do not broadcast "
            "with the others'",
            i, to_string(x[i].type()));
      if (size == 1) size = dims[d];
    }
  }
  return loop;
}

}  // namespace

// Maps over each loop axis that an argument has. What f gives is checked by the signature where f
// is traced, for one element.
Tensors vectorize(const TensorFunction& f, const std::string& text, const Tensors& x,
                  const Place& place) {
  PlaceScope at_place(place);
  const CoreSignature s = SignatureParser(text).parse();
  check(s.arguments.size() == x.size(), "vectorize: '{}' is for {} arguments, got {}", text,
        s.arguments.size(), x.size());
  Sizes sizes;
  const Dims loop = loop_dims(s, x, text, sizes);
  // Loop axes that an argument lacks, or has with extent 1, are not mapped.
  Tensors arguments;
  std::vector<std::vector<bool>> has(loop.size(), std::vector<bool>(x.size()));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Dims& dims = x[i].dims();
    const std::size_t before = dims.size() - s.arguments[i].size();
    Dims mapped_and_core;
    for (std::size_t d = 0; d < before; ++d) {
      const std::size_t axis = loop.size() - before + d;
      has[axis][i] = dims[d] == loop[axis];
      if (has[axis][i]) mapped_and_core.push_back(dims[d]);
    }
    mapped_and_core.insert(mapped_and_core.end(), nth(dims, before), dims.end());
    arguments.push_back(reshape(x[i], mapped_and_core));
  }
  std::size_t results = 0;
  TensorFunction one = [&](TensorSpan in) {
    Tensors y = f(in);
    PlaceScope here(place);
    results = y.size();
    check(y.size() == s.results.size(),
          "vectorize: '{}' is for {} results, the function returns {}", text, s.results.size(),
          y.size());
    Sizes all = sizes;
    for (std::size_t i = 0; i < y.size(); ++i) {
      check(y[i].dims().size() == s.results[i].size(),
            "vectorize: result {} must have {} axes by '{}', got {}", i, s.results[i].size(), text,
            to_string(y[i].type()));
      add_sizes(all, s.results[i], y[i].dims(), "result", i, text);
    }
    return y;
  };
  // The innermost vmap is of the last loop axis. In each the axis is the first that an argument has
  // still.
  for (std::size_t axis = loop.size(); axis-- > 0;) {
    std::vector<int> axes;
    for (const bool mapped : has[axis]) axes.push_back(mapped ? 0 : unmapped);
    one = [inner = one, axes, &results, size = loop[axis], place](TensorSpan in) {
      return vmap(
          inner, Tensors(in.begin(), in.end()), axes, [&] { return std::vector<int>(results, 0); },
          size, "", place);
    };
  }
  PlaceScope::Replace none{Place{}};
  return one(arguments);
}

}  // namespace postern::detail
