// The part of blocks that does not depend on types: configs and kernels with their types erased.
#pragma once
#include <postern/call.h>
#include <postern/detail/api.h>
#include <postern/detail/control_core.h>
#include <postern/detail/function.h>

#include <functional>
#include <memory>
#include <optional>
#include <typeinfo>

namespace postern {

struct FfiTarget;

namespace detail {

/// A block's configuration: its type is the block's identity.
struct BlockConfig {
  const std::type_info* type = nullptr;
  std::string name;
  Attributes attributes;  // the fields
  std::shared_ptr<const void> object;
};

POSTERN_API bool read_dtype(std::string_view name, DType& dtype);

/// Returns the other way; false for what attribute_of does not make of such a field, or where a
/// text has nobody to own it.
template <class T>
bool read_attribute(const Attribute& from, T& field) {
  auto narrowed = [](const auto& wide, auto& narrow) {
    narrow = static_cast<std::decay_t<decltype(narrow)>>(wide);
    return static_cast<std::decay_t<decltype(wide)>>(narrow) == wide || wide != wide;
  };
  if constexpr (std::is_const_v<T>) {
    return false;
  } else if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, std::string>) {
    const T* const v = std::get_if<T>(&from);
    return v && (field = *v, true);
  } else if constexpr (std::is_same_v<T, DType>) {
    const auto* const v = std::get_if<std::string>(&from);
    return v && read_dtype(*v, field);
  } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
    const auto* const v = std::get_if<std::int64_t>(&from);
    return v && narrowed(*v, field);
  } else if constexpr (std::is_floating_point_v<T>) {
    const auto* const v = std::get_if<double>(&from);
    return v && narrowed(*v, field);
  } else if constexpr (is_sequence<T>::value) {
    using E = typename T::value_type;
    if constexpr (std::is_same_v<E, std::string> || std::is_integral_v<E> || std::is_enum_v<E> ||
                  std::is_floating_point_v<E>) {
      const auto* const list = std::get_if<std::vector<KeptAs<E>>>(&from);
      if (!list) return false;
      if constexpr (requires { field.resize(list->size()); }) field.resize(list->size());
      if (field.size() != list->size()) return false;
      bool all = true;
      for (std::size_t i = 0; i < field.size(); ++i) {
        if constexpr (std::is_same_v<E, std::string> || std::is_same_v<E, bool>)
          field[i] = (*list)[i];
        else
          all = narrowed((*list)[i], field[i]) && all;
      }
      return all;
    } else {
      return false;
    }
  } else {
    return false;
  }
}

template <class Config>
concept NamedConfig = requires {
  { Config::name } -> std::convertible_to<std::string_view>;
};

POSTERN_API std::string block_type_name(const std::type_info& type);

template <class Config>
std::string block_name() {
  if constexpr (NamedConfig<Config>)
    return std::string(std::string_view(Config::name));
  else
    return block_type_name(typeid(Config));
}

template <class Config>
BlockConfig erase_config(const Config& config) {
  static_assert(is_aggregate_container<Config>, "postern: a block's config is a plain struct");
  BlockConfig erased{&typeid(Config), block_name<Config>(), {}, hold<Config>(config)};
  if constexpr (field_count<Config>() > 0) {
    with_fields(*static_cast<const Config*>(erased.object.get()), [&](const auto&... field) {
      std::size_t i = 0;
      (erased.attributes.set(std::string(field_names<Config>()[i++]), attribute_of(field)), ...);
    });
  }
  return erased;
}

/// Returns the config with these fields; none if they are not a Config's, or it cannot be made of
/// them.
template <class Config>
std::optional<BlockConfig> config_from(const Attributes& attributes) {
  if constexpr (std::is_default_constructible_v<Config>) {
    Config config{};
    bool all = attributes.items().size() == field_count<Config>();
    if constexpr (field_count<Config>() > 0) {
      with_fields(config, [&](auto&... field) {
        std::size_t i = 0;
        auto read = [&](auto& one) {
          const auto found = attributes.items().find(field_names<Config>()[i++]);
          all = all && found != attributes.items().end() && read_attribute(found->second, one);
        };
        (read(field), ...);
      });
    }
    if (all) return erase_config(config);
  }
  return std::nullopt;
}

/// The default, called with or without the config.
template <class Config, class F>
class BlockBody {
 public:
  BlockBody(Config config, F f) : config_(std::move(config)), f_(std::move(f)) {}
  template <class... B>
  auto operator()(B&... x) {
    if constexpr (std::is_invocable_v<F&, const Config&, B&...>)
      return call_plain(f_, config_, x...);
    else {
      static_assert(std::is_invocable_v<F&, B&...>,
                    "postern: a block's default takes its config and then the operands, or the "
                    "operands alone");
      return call_plain(f_, x...);
    }
  }

 private:
  Config config_;
  F f_;
};

/// Binds a block: `default_fn` gives the results for the operands; `declared` (may be null) is what
/// the caller says that they are.
POSTERN_API Tensors block(const BlockConfig& config, const TensorFunction& default_fn,
                          const Tensors& operands, const std::vector<Type>* declared);

/// A kernel that has been given its config.
using BoundKernel = Function<Callee(const std::shared_ptr<const void>& config)>;

template <class Config, class F, class R, class Parameters, bool takes_config>
struct KernelFor;
template <class Config, class F, class R, class... P>
struct KernelFor<Config, F, R, std::tuple<P...>, false> {
  Shared<F> f;
  std::shared_ptr<const void> config;
  R operator()(P... p) const { return (*f)(std::forward<P>(p)...); }
};
template <class Config, class F, class R, class First, class... P>
struct KernelFor<Config, F, R, std::tuple<First, P...>, true> {
  Shared<F> f;
  std::shared_ptr<const void> config;
  R operator()(P... p) const {
    return (*f)(*static_cast<const Config*>(config.get()), std::forward<P>(p)...);
  }
};

template <class Config, class Parameters>
inline constexpr bool leads_with_config = false;
template <class Config, class First, class... P>
inline constexpr bool leads_with_config<Config, std::tuple<First, P...>> =
    std::is_same_v<std::decay_t<First>, Config>;

template <class Config, class F>
BoundKernel bind_kernel(F&& f, const Place& place) {
  using Fn = std::decay_t<F>;
  static_assert(HasSignature<Fn>,
                "postern: a kernel must be callable, with parameters of stated types (no auto)");
  using Parameters = typename Signature<Fn>::Parameters;
  using Bound = KernelFor<Config, Fn, typename Signature<Fn>::Result, Parameters,
                          leads_with_config<Config, Parameters>>;
  return [fn = Shared<Fn>(std::forward<F>(f)), place](const std::shared_ptr<const void>& config) {
    return Callee(Bound{fn, config}, place);
  };
}

using ErasedSharding =
    std::function<std::string(const void* config, std::span<const Type> operands)>;

/// An override with its types erased.
struct ErasedOverride {
  const std::type_info* type = nullptr;
  std::optional<BlockConfig> (*config_from)(const Attributes&) =
      nullptr;  // of a block that was saved
  std::string block, platform;
  std::function<bool(const void* config, std::span<const Type> operands)> when;
  BoundKernel kernel;
  std::shared_ptr<const FfiTarget> target;
  std::function<Tensors(const void* config, std::span<const Tensor> operands)> program;
  std::function<std::pair<Tensors, Tensors>(const void* config, std::span<const Tensor> operands)>
      vjp_forward;
  std::function<Tensors(const void* config, std::span<const Tensor> residuals,
                        std::span<const Tensor> cotangents)>
      vjp_backward;
  std::optional<VmapMethod> batch;
  std::vector<DType> operand_dtypes = {}, result_dtypes = {};
  std::string sharding;
  ErasedSharding sharding_of;
  bool keeps_default = false;  // instead of another form
  Place place;
};

POSTERN_API std::uint64_t add_override(ErasedOverride override);
POSTERN_API bool remove_override(std::uint64_t id);
POSTERN_API bool has_override(std::uint64_t id);

}  // namespace detail
}  // namespace postern
