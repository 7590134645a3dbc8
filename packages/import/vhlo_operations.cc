// What operations VHLO has, and how their own attributes are named: bytecode keeps the values
// alone, in the order of their names.
#include <algorithm>
#include <map>

#include "vhlo.h"

namespace postern::internal::imported {

namespace {

struct Row {
  std::string_view operations, attributes;
};
constexpr Row rows[] = {
    {"abs_v1 add_v1 after_all_v1 and_v1 async_done_v1 async_start_v1 atan2_v1 bitcast_convert_v1 "
     "case_v1 cbrt_v1 ceil_v1 "
     "clamp_v1 complex_v1 convert_v1 "
     "cosine_v1 count_leading_zeros_v1 create_token_v1 divide_v1 dynamic_pad_v1 dynamic_reshape_v1 "
     "dynamic_update_slice_v1 exponential_minus_one_v1 exponential_v1 floor_v1 if_v1 imag_v1 "
     "is_finite_v1 log_plus_one_v1 "
     "log_v1 logistic_v1 maximum_v1 minimum_v1 multiply_v1 negate_v1 not_v1 "
     "optimization_barrier_v1 or_v1 partition_id_v1 "
     "popcnt_v1 power_v1 real_dynamic_slice_v1 real_v1 remainder_v1 replica_id_v1 reshape_v1 "
     "return_v1 round_nearest_afz_v1 "
     "round_nearest_even_v1 rsqrt_v1 select_v1 shift_left_v1 shift_right_arithmetic_v1 "
     "shift_right_logical_v1 sign_v1 sine_v1 "
     "sqrt_v1 subtract_v1 tan_v1 tanh_v1 tuple_v1 uniform_dequantize_v1 uniform_quantize_v1 "
     "while_v1 xor_v1",
     ""},
    {"all_gather_v1 all_gather_v2",
     "all_gather_dim channel_id replica_groups use_global_device_ids"},
    {"all_reduce_v1 all_reduce_v2", "channel_id replica_groups use_global_device_ids"},
    {"all_to_all_v1 all_to_all_v2",
     "channel_id concat_dimension replica_groups split_count split_dimension"},
    {"batch_norm_grad_v1 batch_norm_inference_v1 batch_norm_training_v1", "epsilon feature_index"},
    {"broadcast_in_dim_v1", "broadcast_dimensions"},
    {"broadcast_v1", "broadcast_sizes"},
    {"call_v1", "callee"},
    {"cbrt_v2 cosine_v2 exponential_minus_one_v2 exponential_v2 log_plus_one_v2 log_v2 logistic_v2 "
     "rsqrt_v2 sine_v2 sqrt_v2 "
     "tan_v2 tanh_v2",
     "result_accuracy"},
    {"cholesky_v1", "lower"},
    {"collective_broadcast_v1", "channel_id replica_groups"},
    {"collective_broadcast_v2", "channel_id has_dynamic_root replica_groups"},
    {"collective_reduce_v1", "channel_id has_dynamic_root replica_groups use_global_device_ids"},
    {"collective_permute_v1", "channel_id source_target_pairs"},
    {"compare_v1", "compare_type comparison_direction"},
    {"composite_v1 composite_v2", "composite_attributes decomposition name version"},
    {"concatenate_v1 get_dimension_size_v1 set_dimension_size_v1", "dimension"},
    {"constant_v1", "value"},
    {"convolution_v1 dynamic_conv_v1",
     "batch_group_count feature_group_count input_batch_dimension input_feature_dimension "
     "input_spatial_dimensions "
     "kernel_input_feature_dimension kernel_output_feature_dimension kernel_spatial_dimensions "
     "lhs_dilation "
     "output_batch_dimension output_feature_dimension output_spatial_dimensions padding "
     "precision_config rhs_dilation "
     "window_reversal window_strides"},
    {"cross-replica-sum_v1", "replica_groups"},
    {"custom_call_v1",
     "api_version backend_config call_target_name called_computations has_side_effect "
     "operand_layouts output_operand_aliases "
     "result_layouts"},
    {"custom_call_v2",
     "api_version backend_config call_target_name called_computations has_side_effect "
     "operand_layouts output_operand_aliases "
     "result_layouts result_tilings"},
    {"dot_general_v1",
     "lhs_batching_dimensions lhs_contracting_dimensions precision_config rhs_batching_dimensions "
     "rhs_contracting_dimensions"},
    {"dot_general_v2",
     "accumulation_type allow_imprecise_accumulation lhs_batching_dimensions lhs_component_count "
     "lhs_contracting_dimensions "
     "lhs_precision_type num_primitive_operations precision_config rhs_batching_dimensions "
     "rhs_component_count "
     "rhs_contracting_dimensions rhs_precision_type"},
    {"dynamic_broadcast_in_dim_v1",
     "broadcast_dimensions known_expanding_dimensions known_nonexpanding_dimensions"},
    {"dynamic_conv_v2",
     "batch_group_count feature_group_count input_batch_dimension input_feature_dimension "
     "input_spatial_dimensions "
     "kernel_input_feature_dimension kernel_output_feature_dimension kernel_spatial_dimensions "
     "lhs_dilation "
     "output_batch_dimension output_feature_dimension output_spatial_dimensions precision_config "
     "rhs_dilation window_reversal "
     "window_strides"},
    {"dynamic_gather_v1",
     "collapsed_slice_dims index_vector_dim indices_are_sorted offset_dims start_index_map"},
    {"dynamic_gather_v2",
     "collapsed_slice_dims index_vector_dim indices_are_sorted offset_dims operand_batching_dims "
     "start_index_map "
     "start_indices_batching_dims"},
    {"dynamic_iota_v1 iota_v1", "iota_dimension"},
    {"dynamic_slice_v1", "slice_sizes"},
    {"einsum_v1 unary_einsum_v1", "einsum_config"},
    {"dot_v1", "precision_config"},
    {"fft_v1", "fft_length fft_type"},
    {"func_v1", "arg_attrs function_type res_attrs sym_name sym_visibility"},
    {"gather_v1",
     "collapsed_slice_dims index_vector_dim indices_are_sorted offset_dims slice_sizes "
     "start_index_map"},
    {"gather_v2",
     "collapsed_slice_dims index_vector_dim indices_are_sorted offset_dims operand_batching_dims "
     "slice_sizes start_index_map "
     "start_indices_batching_dims"},
    {"get_tuple_element_v1", "index"},
    {"infeed_v1", "infeed_config layout"},
    {"map_v1 reduce_v1 reverse_v1", "dimensions"},
    {"outfeed_v1", "outfeed_config"},
    {"pad_v1", "edge_padding_high edge_padding_low interior_padding"},
    {"recv_v1 send_v1", "channel_id channel_type is_host_transfer"},
    {"recv_v2 send_v2", "channel_id channel_type is_host_transfer source_target_pairs"},
    {"reduce_precision_v1", "exponent_bits mantissa_bits"},
    {"reduce_scatter_v1", "channel_id replica_groups scatter_dimension use_global_device_ids"},
    {"reduce_window_v1",
     "base_dilations padding window_dilations window_dimensions window_strides"},
    {"rng_bit_generator_v1", "rng_algorithm"},
    {"rng_v1", "rng_distribution"},
    {"scatter_v1",
     "index_vector_dim indices_are_sorted inserted_window_dims scatter_dims_to_operand_dims "
     "unique_indices update_window_dims"},
    {"scatter_v2",
     "index_vector_dim indices_are_sorted input_batching_dims inserted_window_dims "
     "scatter_dims_to_operand_dims "
     "scatter_indices_batching_dims unique_indices update_window_dims"},
    {"select_and_scatter_v1", "padding window_dimensions window_strides"},
    {"slice_v1", "limit_indices start_indices strides"},
    {"sort_v1", "dimension is_stable"},
    {"torch_index_select_v1", "batch_dims dim"},
    {"transpose_v1", "permutation"},
    {"triangular_solve_v1", "left_side lower transpose_a unit_diagonal"},
};

using Kind = VhloAttribute::Kind;

constexpr VhloExpected expected[] = {
    {"all_gather_dim batch_dims batch_group_count channel_id channel_type concat_dimension dim "
     "dimension "
     "feature_group_count feature_index index index_vector_dim input_batch_dimension "
     "input_feature_dimension iota_dimension kernel_input_feature_dimension "
     "kernel_output_feature_dimension output_batch_dimension output_feature_dimension "
     "scatter_dimension "
     "split_count split_dimension",
     Kind::integer, "i64"},
    {"exponent_bits mantissa_bits", Kind::integer, "i32"},
    {"version", Kind::integer},  // i64 where the file names none
    {"epsilon", Kind::real, "f32"},
    {"lhs_component_count num_primitive_operations rhs_component_count",
     Kind::integer,
     "i64",
     {},
     true},
    {"allow_imprecise_accumulation", Kind::boolean, "", {}, true},
    {"has_dynamic_root has_side_effect indices_are_sorted is_host_transfer is_stable "
     "left_side lower unique_indices unit_diagonal use_global_device_ids",
     Kind::boolean},
    {"call_target_name callee decomposition einsum_config infeed_config name outfeed_config "
     "sym_name "
     "sym_visibility",
     Kind::string},
    {"base_dilations broadcast_dimensions broadcast_sizes collapsed_slice_dims dimensions "
     "edge_padding_high edge_padding_low fft_length input_batching_dims input_spatial_dimensions "
     "inserted_window_dims interior_padding kernel_spatial_dimensions known_expanding_dimensions "
     "known_nonexpanding_dimensions lhs_batching_dimensions lhs_contracting_dimensions "
     "lhs_dilation "
     "limit_indices offset_dims operand_batching_dims output_spatial_dimensions padding "
     "permutation "
     "replica_groups rhs_batching_dimensions rhs_contracting_dimensions rhs_dilation "
     "scatter_dims_to_operand_dims scatter_indices_batching_dims slice_sizes source_target_pairs "
     "start_index_map start_indices start_indices_batching_dims strides update_window_dims "
     "window_dilations window_dimensions window_strides",
     Kind::tensor, "i64"},
    {"window_reversal", Kind::tensor, "i1"},
    {"value", Kind::tensor},
    {"precision_config", Kind::array, "precision_v1", Kind::word},
    {"arg_attrs res_attrs", Kind::array, "", Kind::dictionary},
    {"called_computations", Kind::array, "", Kind::string},
    {"operand_layouts result_layouts", Kind::array, "index", Kind::tensor},
    {"output_operand_aliases", Kind::array, "output_operand_alias_v1", Kind::word},
    {"layout result_tilings", Kind::array},
    {"composite_attributes", Kind::dictionary},
    {"accumulation_type function_type lhs_precision_type rhs_precision_type", Kind::type},
    {"api_version", Kind::word, "api_version_v1"},
    {"compare_type", Kind::word, "comparison_type_v1"},
    {"comparison_direction", Kind::word, "comparison_direction_v1"},
    {"fft_type", Kind::word, "fft_type_v1"},
    {"result_accuracy", Kind::word, "result_accuracy_v1"},
    {"rng_algorithm", Kind::word, "rng_algorithm_v1"},
    {"rng_distribution", Kind::word, "rng_distribution_v1"},
    {"transpose_a", Kind::word, "transpose_v1"},
    {"backend_config", Kind::other},  // a text or a dictionary
};

std::vector<std::string_view> words(std::string_view text) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    const auto end = std::min(text.find(' '), text.size());
    out.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

}  // namespace

const VhloExpected& vhlo_expected(std::string_view attribute) {
  static const auto* const by_name = [] {
    auto* all = new std::map<std::string_view, const VhloExpected*>;
    for (const VhloExpected& e : expected)
      for (const std::string_view name : words(e.attributes)) all->emplace(name, &e);
    return all;
  }();
  return *by_name->at(attribute);
}

std::span<const std::string_view> vhlo_attribute_names(std::string_view operation) {
  static const auto* const by_name = [] {
    auto* all = new std::map<std::string_view, std::vector<std::string_view>>;
    for (const Row& row : rows)
      for (const std::string_view name : words(row.operations))
        all->emplace(name, words(row.attributes));
    return all;
  }();
  auto found = by_name->end();
  if (operation.starts_with("vhlo.")) found = by_name->find(operation.substr(5));
  if (found == by_name->end()) refuse_newer(operation);
  return found->second;
}

}  // namespace postern::internal::imported
