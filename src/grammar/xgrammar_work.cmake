# xgrammar cannot be interrupted. This makes copies of its sources that count their work, and can so be stopped
# (work_limit.h). xgrammar_counted lists the copies, xgrammar_originals the sources that they replace.

# Adds `call` (CountWork or CountEdges) after each occurrence of `place` in cpp/NAME.cc.
function(count_work name place call)
  if(NOT DEFINED counted_${name})
    file(READ ${WINNOW_XGRAMMAR_DIR}/cpp/${name}.cc counted_${name})
    string(PREPEND counted_${name} "#include \"grammar/work_limit.h\"\n")
  endif()
  string(REPLACE "${place}" "${place} winnow::grammar::${call};" code "${counted_${name}}")
  if(code STREQUAL counted_${name})
    message(FATAL_ERROR "${WINNOW_XGRAMMAR_DIR}/cpp/${name}.cc has no '${place}'. Is it of the version that "
                        "tools/fetch_xgrammar.sh fetches?")
  endif()
  set(counted_${name} "${code}" PARENT_SCOPE)
endfunction()

# Parsers: the states that are predicted, scanned, or wait for another. A new parser computes a mask.
count_work(earley_parser "tmp_process_state_queue_.pop();" "CountWork(1)")
count_work(earley_parser "const auto& current_fsm = grammar_->per_rule_fsms[state.rule_id].value();" "CountWork(1)")
count_work(earley_parser "const auto& parent_states_map = rule_id_to_completable_states_[state.rule_start_pos];"
           "CountWork(parent_states_map.size() / 8)")
count_work(earley_parser "const auto in_vec = [&](const ParserState& state_) {"
           "CountWork(rule_id_to_completable_states_.Back().size() / 8)")
count_work(earley_parser "PushStateAndExpand(initial_state.has_value() ? *initial_state : RootInitialState());"
           "CountWork(1024)")
count_work(grammar_matcher "    tmp_rejected_indices_delta_.clear();"
           "CountWork(adaptive_token_mask.uncertain_indices.size() / 8)")

# Automata: the states and edges that are made, copied, merged, searched or hashed.
count_work(fsm "void FSM::AddEdge(int from, int to, int32_t min, int32_t max) {" "CountEdges(1)")
count_work(fsm "int FSM::AddState() {" "CountEdges(1)")
count_work(fsm "for (int i = 0; i < fsm.NumStates(); ++i) {\n    for (const auto& edge : fsm.GetEdges()[i]) {" "CountWork(1)")
count_work(fsm "for (int i = 0; i < static_cast<int>(edges_.size()); ++i) {" "CountWork(1 + edges_[i].size())")
count_work(fsm "int current = queue.front();\n    queue.pop();" "CountWork(1 + edges_[current].size())")
count_work(fsm "const auto& edges = fsm_->GetEdges(i);" "CountWork(1 + edges.size())")
count_work(fsm "auto siblings = outgoing_edges[previous_state];" "CountWork(siblings.size())")
count_work(fsm "auto siblings = incoming_edges[next_state];" "CountWork(siblings.size())")
count_work(grammar_functor "bfs_queue.pop();"
           "CountWork(1 + sorted_edges_[current_old_state_id].size() + hash_and_target.size())")

set(xgrammar_counted)
set(xgrammar_originals)
foreach(name earley_parser fsm grammar_functor grammar_matcher)
  set(copy ${CMAKE_CURRENT_BINARY_DIR}/xgrammar/${name}.cc)
  set(before)
  if(EXISTS ${copy})
    file(READ ${copy} before)
  endif()
  if(NOT before STREQUAL counted_${name})  # unchanged copies are not compiled again
    file(WRITE ${copy} "${counted_${name}}")
  endif()
  list(APPEND xgrammar_counted ${copy})
  list(APPEND xgrammar_originals ${WINNOW_XGRAMMAR_DIR}/cpp/${name}.cc)
endforeach()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${xgrammar_originals})
