#include "cuda/graph/graph.h"

#include <string.h>

#include "cuda/graph/allocation.h"

CUgraph graph_new(void) {
    static unsigned long long last_id; /* lock */
    CUgraph graph = object_new(OBJECT_GRAPH, sizeof *graph);
    if (graph)
        graph->id = ++last_id;
    return graph;
}

bool graph_owns_all(CUgraph graph, const CUgraphNode *nodes, size_t count) {
    if (count && !nodes)
        return false;
    for (size_t i = 0; i < count; i++)
        if (!object_is(nodes[i], OBJECT_NODE) || nodes[i]->graph != graph)
            return false;
    return true;
}

static bool depends_on(CUgraphNode node, CUgraphNode other) {
    for (size_t i = 0; i < node->dependency_count; i++)
        if (node->dependencies[i] == other)
            return true;
    return false;
}

bool graph_depend(CUgraphNode node, const CUgraphNode *dependencies, size_t count) {
    CUgraphNode *all = realloc(node->dependencies, (node->dependency_count + count + 1) * sizeof *all);
    if (!all)
        return false;
    node->dependencies = all;
    for (size_t i = 0; i < count; i++)
        if (!depends_on(node, dependencies[i]))
            all[node->dependency_count++] = dependencies[i];
    return true;
}

CUgraphNode graph_add(CUgraph graph, CUgraphNodeType type, const CUgraphNode *dependencies, size_t count) {
    CUgraphNode node = object_new(OBJECT_NODE, sizeof *node);
    if (!node)
        return NULL;
    if (!graph_depend(node, dependencies, count)) {
        object_free(node);
        return NULL;
    }
    node->graph = graph;
    node->type = type;
    if (graph->last)
        graph->last->next = node;
    else
        graph->first = node;
    graph->last = node;
    graph->node_count++;
    return node;
}

static void free_node(CUgraphNode node) {
    if (node->allocation)
        graph_memory_drop(node->allocation);
    if (node->child)
        graph_free(node->child);
    free(node->dependencies);
    object_free(node);
}

void graph_free(CUgraph graph) {
    while (graph->first) {
        CUgraphNode node = graph->first;
        graph->first = node->next;
        free_node(node);
    }
    object_free(graph);
}

static void forget(CUgraphNode node, CUgraphNode dependency) {
    size_t kept = 0;
    for (size_t i = 0; i < node->dependency_count; i++)
        if (node->dependencies[i] != dependency)
            node->dependencies[kept++] = node->dependencies[i];
    node->dependency_count = kept;
}

void graph_remove(CUgraphNode node) {
    CUgraph graph = node->graph;
    CUgraphNode before = NULL;
    for (CUgraphNode other = graph->first; other; other = other->next) {
        forget(other, node);
        if (other->next == node)
            before = other;
    }
    if (before)
        before->next = node->next;
    else
        graph->first = node->next;
    if (graph->last == node)
        graph->last = before;
    graph->node_count--;
    free_node(node);
}

CUgraphNode graph_find_copy(CUgraph copy, CUgraphNode origin) {
    for (CUgraphNode node = copy->first; node; node = node->next)
        if (node->origin == origin)
            return node;
    return NULL;
}

static bool copy_contents(CUgraphNode copy, CUgraphNode origin) {
    copy->origin = origin;
    copy->work = origin->work;
    copy->address = origin->address;
    copy->allocation = origin->allocation;
    if (copy->allocation)
        graph_memory_use(copy->allocation);
    copy->child = origin->child ? graph_clone(origin->child) : NULL;
    if (copy->child)
        copy->child->is_child = true;
    return !origin->child || copy->child;
}

static bool copy_node(CUgraph clone, CUgraphNode origin) {
    CUgraphNode copy = graph_add(clone, origin->type, NULL, 0);
    return copy && copy_contents(copy, origin);
}

static bool copy_edges(CUgraph clone, CUgraph graph) {
    for (CUgraphNode origin = graph->first; origin; origin = origin->next) {
        CUgraphNode copy = graph_find_copy(clone, origin);
        for (size_t i = 0; i < origin->dependency_count; i++) {
            CUgraphNode dependency = graph_find_copy(clone, origin->dependencies[i]);
            if (!graph_depend(copy, &dependency, 1))
                return false;
        }
    }
    return true;
}

CUgraph graph_clone(CUgraph graph) {
    CUgraph clone = graph_new();
    if (!clone)
        return NULL;
    bool good = true;
    for (CUgraphNode node = graph->first; node && good; node = node->next)
        good = copy_node(clone, node);
    if (!good || !copy_edges(clone, graph)) {
        graph_free(clone);
        return NULL;
    }
    clone->source = graph;
    clone->source_id = graph->id;
    return clone;
}

bool graph_memory_in(CUgraph graph) {
    for (CUgraphNode node = graph->first; node; node = node->next)
        if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || node->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
            return true;
    return false;
}

bool graph_memory_frees(CUgraph graph, uint64_t address) {
    for (CUgraphNode node = graph->first; node; node = node->next)
        if (node->type == CU_GRAPH_NODE_TYPE_MEM_FREE && node->address == address)
            return true;
    return false;
}
